#!/usr/bin/env python3
"""How the repository's prose reads: old-style words, and long sentences in documents.

Both are a ratchet: tools/words.txt has the number of each that is left, which may only fall.

  tools/check_words.py            compares; status 1 if a number differs
  tools/check_words.py --list     lists every place, for all files or those whose path starts
                 [PATH...]        with one of PATH
  tools/check_words.py --record   lowers the numbers to what is left; never raises one
"""
import pathlib
import re
import subprocess
import sys

import prose

NUMBERS = pathlib.Path("tools/words.txt")
MAX_WORDS = 30
# Not options, as --everybody. These name an unknown person, or turn a component's action into a riddle.
OLD_STYLE = re.compile(
    r"\b(?<!--)(?:who(?:m)?ever|some(?:body|one)|nobody|no one|any(?:body|one)|every(?:body|one)"
    r"|so (?:many|much)\b(?! as)|all the same|now and then|and so (?:is|are|does|do|has)"
    r"|than was thought|should be [^.;]{1,20} of them|which rule|not all of it has left"
    r"|does not speak|(?:is|are) for \w+(?: \w+){0,2} to (?:say|decide|know|tell)"
    r"|(?:(?<=[.;:] )|^)(?:who|whose) (?!may do)(?=[^.?!]*(?:[.;:,]|$))"
    r"|what (?:is|are|was|were|has|had|does|do|there|nothing|fits) [^.?!;:|]{1,70}?"
    r" (?:is|are|was|were|has|goes|stays|lies|waits|gives|counts|needs))\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?])[)\"”*]*\s+(?=[^a-z])")
_WORD = re.compile(r"[\w'’./–+%-]*[A-Za-z0-9][\w'’./%-]*")
# This check's own lists of words, and texts that other people wrote.
EXEMPT = ("tools/check_words.py", "tools/checks_test.py", "tests/data/", "LICENSE")


def is_test(path):
    return str(path).startswith("tests/") or "_test." in path.name


def passages(path, text):
    """(kind, line, text) of all prose in a file; kinds: docs, comments, messages."""
    if path.suffix == ".md":
        return [("docs", line, words) for line, words in prose.markdown(text)]
    if path.suffix in (".h", ".cc", ".def", ".cu"):
        found = prose.cxx(text)
    elif path.suffix == ".py":
        found = prose.python(text)
    elif path.suffix in (".sh", ".cmake", ".txt", ".map", "") and path.name != "words.txt":
        found = prose.hashes(text)
    else:
        return []
    # What a test prints is read where it fails, beside its code.
    return [one for one in found if one[0] == "comments" or not is_test(path)]


def long_sentences(text):
    for sentence in _SENTENCE_END.split(text):
        if len([word for word in _WORD.findall(sentence) if word != "CODE"]) > MAX_WORDS:
            yield sentence


def places(texts):
    """(ratchet's row, path, line, excerpt) of each hit in these files (path to content)."""
    for path, text in texts.items():
        if str(path).startswith(EXEMPT):
            continue
        for kind, line, words in passages(path, text):
            for hit in OLD_STYLE.finditer(words):
                yield f"old-style words in {kind}", path, line, " ".join(hit[0].split())
            for sentence in long_sentences(words) if kind == "docs" else ():
                yield f"sentences over {MAX_WORDS} words in docs", path, line, sentence


def recorded():
    rows = {}
    for line in NUMBERS.read_text(encoding="utf-8").splitlines() if NUMBERS.exists() else ():
        if line and not line.startswith("#"):
            count, row = line.split(maxsplit=1)
            rows[row] = int(count)
    return rows


def counted(found):
    rows = {}
    for row, *_ in found:
        rows[row] = rows.get(row, 0) + 1
    return rows


def tracked_texts():
    listed = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True)
    for path in map(pathlib.Path, filter(None, listed.stdout.split("\0"))):
        try:
            if path.is_file() and not path.is_symlink():
                yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def main():
    command, *prefixes = sys.argv[1:] or [""]
    found = list(places(dict(tracked_texts())))
    if command == "--list":
        for row, path, line, excerpt in found:
            if not prefixes or str(path).startswith(tuple(prefixes)):
                print(f"{path}:{line}: {row}: {excerpt}")
        return 0
    limits, now = recorded(), counted(found)
    if command == "--record":
        head = "# What tools/check_words.py may find at most; `--record` lowers these numbers.\n"
        limits = {row: min(now.get(row, 0), limits.get(row, 10**6)) for row in {*limits, *now}}
        rows = (f"{limits[row]:6} {row}\n" for row in sorted(limits))
        NUMBERS.write_text(head + "".join(rows), encoding="utf-8")
        return 0
    differs = False
    for row in sorted({*limits, *now}):
        limit, count = limits.get(row, 0), now.get(row, 0)
        differs |= count != limit
        if count > limit:
            print(f"{count} {row}, {NUMBERS} allows {limit}: see tools/check_words.py --list")
        elif count < limit:
            print(f"{count} {row}, fewer than {NUMBERS} has: run tools/check_words.py --record")
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
