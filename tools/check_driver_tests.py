#!/usr/bin/env python3
"""Every driver call that the software GPU has is called in tests/driver."""
import pathlib
import re
import sys

from driver_table import DRIVER, ROW

TESTS = pathlib.Path("tests/driver")
COMMENT = re.compile(r"//.*")
NAME = re.compile(r"\bcu[A-Z]\w*")


def main():
    named = set()
    for path in TESTS.glob("*.cc"):
        named.update(NAME.findall(COMMENT.sub("", path.read_text(encoding="utf-8"))))
    rows = map(ROW.match, DRIVER.read_text(encoding="utf-8").splitlines())
    there = [row["symbol"] for row in rows if row and row["soft"] == "YES"]
    missing = [symbol for symbol in there if symbol not in named]
    for symbol in missing:
        print(f"{DRIVER}: the software GPU has {symbol}, and no test in {TESTS} calls it")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
