#!/usr/bin/env python3
"""The tables of calls in docs/software-gpu.md, made from driver_api.def and nvml_api.def.

  driver_table.py           writes them
  driver_table.py --check   says whether they are up to date
"""
import pathlib
import re
import sys

from driver_rows import TABLE, read_row

DOCUMENT = pathlib.Path("docs/software-gpu.md")
NVML = pathlib.Path("softgpu/nvml/nvml_api.def")
BEGIN = "<!-- Made by tools/driver_table.py from {}. -->\n"
END = "<!-- End of the table. -->\n"
SECTION = re.compile(r"// ---- (?P<title>.+)")
STATES = {"YES": "there", "NO": "absent", "LOADER": "not supported"}
NVML_ROW = re.compile(r"NVML(_TEXT|_WITHOUT)?\((?P<name>\w+?)(?P<version>_v\d)?, ")


def version(since):
    """1000 * major + 10 * minor, as in "12.4"."""
    return f"{since // 1000}.{since % 1000 // 10}"


def calls(rows):
    """A line for each function."""
    yield from ("| function | since | state |", "|---|---|---|")
    for row in rows:
        name = f"`{row.symbol}`" + (f", `{row.suffix}`" if row.suffix else "")
        yield f"| {name} | {version(row.since)} | {STATES[row.soft]} |"


def names(rows):
    """A line for each reason."""
    yield from ("| because it | functions |", "|---|---|")
    for why in dict.fromkeys(row.why for row in rows):
        yield f"| {why} | {', '.join(f'`{row.symbol}`' for row in rows if row.why == why)} |"


def driver_table(text):
    """A table for each section."""
    sections = {}
    for line in text.splitlines():
        if section := SECTION.match(line):
            rows = sections.setdefault(section["title"], [])
        elif row := read_row(line):
            rows.append(row)
    lines = []
    for title, rows in sections.items():
        lines += ["", f"**{title}**", "", *(names if rows[0].why else calls)(rows)]
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


TABLES = ((TABLE, driver_table), (NVML, nvml_table))


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
