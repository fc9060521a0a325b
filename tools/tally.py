#!/usr/bin/env python3
"""Names the failed tests of a run, and counts all: `N passed, N failed, N skipped`.

  tools/tally.py FOLDER     a subfolder of FOLDER for each step of the run

A step's folder has the XML reports that GoogleTest, CTest and pytest wrote there. If the step failed,
the folder has an empty file named `failed`. A case that ran several times in a step, such as a fault of
the driver tests, counts once: as failed if it failed once, as skipped if it never ran. A failed step
without a failed test, such as a build, counts as one failed test.

A program that crashes or takes too long has no report. It is named with the test that it had begun.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree

RESULTS = ("skipped", "passed", "failed")  # of several results of a case, the last counts


def result(case):
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "passed" if case.find("skipped") is None else "skipped"


def elements(report):
    try:
        return list(xml.etree.ElementTree.parse(report).getroot().iter("testcase"))
    except (FileNotFoundError, xml.etree.ElementTree.ParseError):
        return []  # the program died while it wrote; CTest reports that


def cases(report):
    """The cases of a report and their results."""
    # A program that runs again writes NAME_1.xml.
    program = re.sub(r"_\d+$", "", report.stem)
    for case in elements(report):
        # Disabled cases are the other processes of a driver test.
        if case.get("status") != "notrun":
            yield (program, case.get("classname"), case.get("name")), result(case)


def unfinished(output):
    """The GoogleTest case that the output of a program ends in; None if all that began ended."""
    running = None
    for mark, name in re.findall(r"^\[ +(RUN|OK|FAILED|SKIPPED) +\] ([\w/]+\.[\w/]+)", output, re.M):
        running = name if mark == "RUN" else None
    return running


def failures_of(folder):
    """The names of what failed in a step."""
    named = set()
    for report in sorted(folder.glob("*.xml")):
        if report.name != "ctest.xml":
            named |= {name for name, outcome in cases(report) if outcome == "failed"}
    lines = {f"{owner}.{name}" if program == "pytest" else f"{program}: {owner}.{name}"
             for program, owner, name in named}  # fmt: skip
    for case in elements(folder / "ctest.xml"):
        if result(case) != "failed":
            continue
        output = case.findtext("system-out") or ""
        running = unfinished(output)
        if running is not None:
            lines.add(f"{case.get('name')}: {running} did not end")
        elif "[  FAILED  ]" not in output:  # or its own report names what failed
            lines.add(case.get("name"))
    return sorted(lines)


def tally_step(folder):
    found, failed_programs = {}, 0
    for report in sorted(folder.glob("*.xml")):
        for name, outcome in cases(report):
            # CTest's cases are whole programs. Those that crashed have no report of their own.
            if report.name == "ctest.xml":
                failed_programs += outcome == "failed"
            else:
                found[name] = max(outcome, found.get(name, outcome), key=RESULTS.index)
    counts = {outcome: list(found.values()).count(outcome) for outcome in RESULTS}
    counts["failed"] = max(counts["failed"], failed_programs, (folder / "failed").exists())
    return counts


def main():
    folders = [path for path in pathlib.Path(sys.argv[1]).iterdir() if path.is_dir()]
    for line in sorted({line for folder in folders for line in failures_of(folder)}):
        print(f"failed: {line}")
    steps = [tally_step(folder) for folder in folders]
    passed, failed, skipped = (
        sum(step[outcome] for step in steps) for outcome in ("passed", "failed", "skipped")
    )
    print(f"{passed} passed, {failed} failed, {skipped} skipped")


if __name__ == "__main__":
    main()
