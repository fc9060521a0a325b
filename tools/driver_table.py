#!/usr/bin/env python3
"""The table of driver calls in docs/software-gpu.md, made from driver_api.def.

  driver_table.py           writes it
  driver_table.py --check   says whether it is up to date
"""
import pathlib
import re
import sys

ROWS = pathlib.Path("src/cuda/driver_api.def")
DOCUMENT = pathlib.Path("docs/software-gpu.md")
BEGIN = "<!-- Made by tools/driver_table.py from src/cuda/driver_api.def. -->\n"
END = "<!-- End of the table. -->\n"
SECTION = re.compile(r"// ---- (?P<title>.+)")
ROW = re.compile(
    r"CU(_PT)?\((?P<symbol>\w+), ((?P<suffix>_pt[sd][sz]), )?\w+, (?P<since>\d+), "
    r"(PASS|OWN|GATE\(\w+\)), (?P<soft>YES|NO|LOADER), "
)
STATES = {"YES": "there", "NO": "absent", "LOADER": "not supported"}


def version(since):
    """1000 * major + 10 * minor, as in "12.4"."""
    return f"{since // 1000}.{since % 1000 // 10}"


def table(text):
    lines = []
    for line in text.splitlines():
        if section := SECTION.match(line):
            lines += ["", f"**{section['title']}**", "", "| function | since | state |", "|---|---|---|"]
        elif row := ROW.match(line):
            name = f"`{row['symbol']}`" + (f", `{row['suffix']}`" if row["suffix"] else "")
            lines.append(f"| {name} | {version(int(row['since']))} | {STATES[row['soft']]} |")
    return "\n".join(lines) + "\n\n"


def renewed(document, text):
    """The document with its table made anew; None if it has no place for one."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    return before + begin + table(text) + end + after if begin and end else None


def main():
    document = DOCUMENT.read_text(encoding="utf-8")
    wanted = renewed(document, ROWS.read_text(encoding="utf-8"))
    if wanted is None:
        print(f"{DOCUMENT}: the marks around the table of driver calls are gone")
        return 1
    if "--check" not in sys.argv[1:]:
        DOCUMENT.write_text(wanted, encoding="utf-8")
    elif document != wanted:
        print(f"{DOCUMENT}: its table of driver calls is not what {ROWS} says; run tools/driver_table.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
