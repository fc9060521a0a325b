#!/usr/bin/env python3
"""Every error that CUDA's reference gives a driver call is met in tests/driver, or excused.

documented_errors.def has a row for each; its head says what the rows are. What the tests expect is
read from their text: REFUSES, and EXPECT_CU and EXPECT_EQ of a call of Cu(). Where a driver has
several answers to choose from, the first counts, which is the one that the software GPU must give.

  check_driver_errors.py --excused   lists the reasons and how many pairs have each
"""
import collections
import dataclasses
import pathlib
import re
import sys

from driver_rows import read_rows

# The reference says nothing of their errors.
UNSAID = {"cuMemPoolGetAccess"}
ERRORS = pathlib.Path("tests/driver/documented_errors.def")
TESTS = pathlib.Path("tests/driver")
ROW = re.compile(
    r"(?P<kind>DOCUMENTED|IN_A_LOOP|AFTER_A_FAULT|EXCUSED)\((?P<function>\w+)"
    r'(?:, (?P<error>CUDA_ERROR_\w+))?(?:, "(?P<why>[^"]+)")?\)'
)
COMMENT = re.compile(r"//[^\n]*")
TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"')
ANSWERS = re.compile(r"\bAnswers (?P<name>\w+) = \{(?P<first>CUDA_\w+)")
EXPECTATION = re.compile(r"\b(?P<macro>REFUSES|EXPECT_CU|EXPECT_EQ)\(")
CALL = re.compile(r"\bCu\(\)\.(cu\w+)\(")
WORD = re.compile(r"\w+")


@dataclasses.dataclass
class Row:
    kind: str
    pair: tuple  # function and error, which is None AFTER_A_FAULT
    why: str
    line: int


def read_errors():
    for number, line in enumerate(ERRORS.read_text(encoding="utf-8").splitlines(), 1):
        if read := ROW.fullmatch(line):
            yield Row(read["kind"], (read["function"], read["error"]), read["why"] or "", number)
        elif re.match(r"[A-Z_]+\(", line):
            raise SystemExit(f"{ERRORS}:{number}: does not read as a row: {line}")


def arguments(text, begin):
    """The arguments of the call whose bracket opens just before `begin`."""
    found, depth, last = [], 0, begin
    for place in range(begin, len(text)):
        if text[place] in "([{":
            depth += 1
        elif text[place] in ")]}":
            depth -= 1
        if depth < 0 or (depth == 0 and text[place] == ","):
            found.append(text[last:place].strip())
            last = place + 1
        if depth < 0:
            return found
    return []


def first_answer(text, known):
    """The error that an argument stands for: itself, or the first of the answers it names."""
    for word in WORD.findall(text.rpartition("?")[2]):
        if word.startswith("CUDA_"):
            return word
        if word in known:
            return known[word]
    return None


def expectations(text, shared):
    """The symbols and errors that the text of a file expects."""
    text = TEXT.sub('""', COMMENT.sub("", text))
    marks = [*ANSWERS.finditer(text), *EXPECTATION.finditer(text)]
    known = dict(shared)
    for mark in sorted(marks, key=re.Match.start):
        if mark.re is ANSWERS:
            known[mark["name"]] = mark["first"]
            continue
        first, second, *_ = [*arguments(text, mark.end()), "", ""]
        if mark["macro"] == "REFUSES":
            yield second, first_answer(first, known)
            continue
        if CALL.search(first):
            first, second = second, first
        if call := CALL.search(second):
            yield call[1], first_answer(first, known)


def shown_pairs(bases):
    header = (TESTS / "errors.h").read_text(encoding="utf-8")
    shared = {mark["name"]: mark["first"] for mark in ANSWERS.finditer(header)}
    shown = set()
    for path in sorted(TESTS.glob("*_test.cc")):
        for symbol, error in expectations(path.read_text(encoding="utf-8"), shared):
            shown.add((bases.get(symbol), error))
    return shown


def problems(rows, shown, there):
    seen = set()
    for row in rows:
        where = f"{ERRORS}:{row.line}"
        if row.pair in seen:
            yield f"{where}: there is a row for it already"
        seen.add(row.pair)
        if row.pair[0] not in there:
            yield f"{where}: the software GPU has no {row.pair[0]}"
        if (row.kind == "AFTER_A_FAULT") != (row.pair[1] is None):
            yield f"{where}: every row but AFTER_A_FAULT is of an error"
        if (row.kind == "EXCUSED") != bool(row.why):
            yield f"{where}: EXCUSED has a reason, and nothing else has"
        if row.kind == "DOCUMENTED" and row.pair not in shown:
            yield f"{where}: no test in {TESTS} expects {row.pair[1]} of {row.pair[0]}"
        elif row.kind == "EXCUSED" and row.pair in shown:
            yield f"{where}: a test expects {row.pair[1]} of {row.pair[0]}, which needs no excuse"
    for function in sorted(there - {function for function, error in seen if error} - UNSAID):
        yield f"{ERRORS}: the software GPU has {function}, of whose errors there is no row"


def main():
    table = [row for row in read_rows() if row.soft == "YES"]
    bases = {symbol: row.base for row in table for symbol in row.symbols}
    rows = list(read_errors())
    found = list(problems(rows, shown_pairs(bases), set(bases.values())))
    print("\n".join(found), end="\n" if found else "")
    if "--excused" in sys.argv[1:]:
        for why, count in collections.Counter(row.why for row in rows).most_common():
            print(f"{count:5} {why or '(in a test)'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
