#!/usr/bin/env python3
"""The rows of driver_api.def against what is known of the driver's functions.

Every function has exactly one row, under the name and version by which cuGetProcAddress knows it.
One whose class says that it allocates, submits, frees, describes memory or makes contexts is hooked
or refused. Where it is passed on after all, tools/passed_on_purpose.tsv says why, and whether that
is for good or only for now.
"""
import collections
import csv
import pathlib
import re
import sys

from driver_rows import TABLE, read_rows

CLASSES = pathlib.Path("tests/data/driver_api_classes.tsv")
PASSED = pathlib.Path("tools/passed_on_purpose.tsv")
# Headers beside cuda.h, whose functions are not classified.
ELSEWHERE = re.compile(r"cu(Graphics)?(GL|EGL|VDPAU)\w+")
VARIANT = re.compile(r"\w+(_ptds|_ptsz)")
# Default streams of one per thread came with it, also to functions that were there before.
VARIANTS_SINCE = 7000


def read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def by_symbol(rows):
    found = collections.defaultdict(list)
    for row in rows:
        for symbol in row.symbols:
            found[symbol].append(row)
    return found


def must_be_handled(fact):
    """Whether the driver would do with memory or work what Tandem has to know of."""
    tracked = fact["class"].startswith("C ") and fact["handling"].startswith("track")
    return tracked or fact["class"][0] in "ASFQT"


def row_problems(facts, rows):
    for symbol, found in rows.items():
        if len(found) > 1:
            yield f"{TABLE}: {symbol} has {len(found)} rows"
        if symbol not in facts and not ELSEWHERE.fullmatch(symbol):
            yield f"{TABLE}: {symbol} is not in {CLASSES}"
    for symbol, fact in facts.items():
        if symbol not in rows:
            yield f"{TABLE}: {symbol} has no row"
            continue
        row = rows[symbol][0]
        since = max(row.since, VARIANTS_SINCE) if VARIANT.fullmatch(symbol) else row.since
        if (row.base, since) != (fact["base_name"], int(fact["min_cuda"])):
            yield f"{TABLE}: {symbol} is {fact['base_name']} of version {fact['min_cuda']}"


def passed_problems(facts, rows, passed):
    wanted = {
        symbol
        for symbol, fact in facts.items()
        if must_be_handled(fact) and symbol in rows and not rows[symbol][0].hooked
    }
    listed = collections.Counter(entry["symbol"] for entry in passed)
    for symbol in sorted(wanted - set(listed)):
        yield (
            f"{TABLE}: {symbol} is passed on, though it is of class {facts[symbol]['class']}: "
            f"hook it, refuse it, or say why not in {PASSED}"
        )
    for symbol in sorted(set(listed) - wanted):
        yield f"{PASSED}: {symbol} need not be listed (any more)"
    for symbol, count in listed.items():
        if count > 1:
            yield f"{PASSED}: {symbol} is listed {count} times"
    for entry in passed:
        if entry["passed"] not in ("for good", "for now") or not entry["reason"]:
            yield f"{PASSED}: {entry['symbol']} is passed 'for good' or 'for now', with a reason"


def main():
    facts = {fact["symbol"]: fact for fact in read(CLASSES)}
    rows = by_symbol(read_rows())
    found = [*row_problems(facts, rows), *passed_problems(facts, rows, read(PASSED))]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
