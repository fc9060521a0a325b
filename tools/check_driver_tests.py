#!/usr/bin/env python3
"""Every driver call that the software GPU has is called in tests/driver."""
import pathlib
import re
import sys

from driver_rows import TABLE, read_rows

TESTS = pathlib.Path("tests/driver")
COMMENT = re.compile(r"//.*")
NAME = re.compile(r"\bcu[A-Z]\w*")


def main():
    named = set()
    for path in TESTS.glob("*.cc"):
        named.update(NAME.findall(COMMENT.sub("", path.read_text(encoding="utf-8"))))
    there = [row.symbol for row in read_rows() if row.soft == "YES"]
    missing = [symbol for symbol in there if symbol not in named]
    for symbol in missing:
        print(f"{TABLE}: the software GPU has {symbol}, and no test in {TESTS} calls it")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
