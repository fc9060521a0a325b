#!/usr/bin/env python3
"""The tables of calls in docs/software-gpu.md, made from driver_api.def and nvml_api.def.

  driver_table.py           writes them
  driver_table.py --check   says whether they are up to date
"""
import pathlib
import re
import sys

DOCUMENT = pathlib.Path("docs/software-gpu.md")
DRIVER = pathlib.Path("src/cuda/driver_api.def")
NVML = pathlib.Path("src/softgpu/nvml/nvml_api.def")
BEGIN = "<!-- Made by tools/driver_table.py from {}. -->\n"
END = "<!-- End of the table. -->\n"
SECTION = re.compile(r"// ---- (?P<title>.+)")
ROW = re.compile(
    r"CU(_PT)?\((?P<symbol>\w+), ((?P<suffix>_pt[sd][sz]), )?\w+, (?P<since>\d+), "
    r"(PASS|OWN|HOLD|GATE\(\w+\)), (?P<soft>YES|NO|LOADER), "
)
STATES = {"YES": "there", "NO": "absent", "LOADER": "not supported"}
NVML_ROW = re.compile(r"NVML(_TEXT|_WITHOUT)?\((?P<name>\w+?)(?P<version>_v\d)?, ")


def version(since):
    """1000 * major + 10 * minor, as in "12.4"."""
    return f"{since // 1000}.{since % 1000 // 10}"


def driver_table(text):
    """A table for each section, a line for each function."""
    lines = []
    for line in text.splitlines():
        if section := SECTION.match(line):
            lines += ["", f"**{section['title']}**", "", "| function | since | state |", "|---|---|---|"]
        elif row := ROW.match(line):
            name = f"`{row['symbol']}`" + (f", `{row['suffix']}`" if row["suffix"] else "")
            lines.append(f"| {name} | {version(int(row['since']))} | {STATES[row['soft']]} |")
    return "\n".join(lines) + "\n\n"


def nvml_table(text):
    """One table, a line for each section. Versions of a function stand behind its name."""
    sections = {}
    for line in text.splitlines():
        if section := SECTION.match(line):
            names = sections.setdefault(section["title"], {})
        elif row := NVML_ROW.match(line):
            versions = names.setdefault(row["name"], [])
            versions.append(row["version"] or "")
    lines = ["", "| what | functions |", "|---|---|"]
    for title, names in sections.items():
        functions = []
        for name, (first, *others) in names.items():
            functions.append("".join([f"`{name}{first}`"] + [f" `{other}`" for other in others]))
        lines.append(f"| {title} | {', '.join(functions)} |")
    return "\n".join(lines) + "\n\n"


TABLES = ((DRIVER, driver_table), (NVML, nvml_table))


def renewed(document, rows, table):
    """The document with the table of these rows made anew; None if it has no place for it."""
    before, begin, rest = document.partition(BEGIN.format(rows))
    _, end, after = rest.partition(END)
    if not (begin and end):
        return None
    return before + begin + table(rows.read_text(encoding="utf-8")) + end + after


def main():
    document = wanted = DOCUMENT.read_text(encoding="utf-8")
    for rows, table in TABLES:
        wanted = renewed(wanted, rows, table)
        if wanted is None:
            print(f"{DOCUMENT}: the marks around the table of {rows} are gone")
            return 1
    if "--check" not in sys.argv[1:]:
        DOCUMENT.write_text(wanted, encoding="utf-8")
    elif document != wanted:
        print(f"{DOCUMENT}: its tables are not what the .def files say; run tools/driver_table.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
