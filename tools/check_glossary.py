#!/usr/bin/env python3
"""docs/glossary.md explains the noun that each class of src/ is named after.

The noun stands there in bold, in italics or as code: `HostArena` as "**host arena**", "*host arenas*"
or "`HostArena`". tools/glossary_exempt.txt lists classes that stand for no concept of Tandem's own.
"""
import pathlib
import re
import subprocess
import sys

GLOSSARY = pathlib.Path("docs/glossary.md")
EXEMPT = pathlib.Path("tools/glossary_exempt.txt")
CLASS = re.compile(
    r"^class (?:\w+\(.*?\) |\[\[\w+\]\] )?(\w+)(?: final)?(?: :[^;{]*)?\s*\{", re.MULTILINE
)
TERM = re.compile(r"(\*{1,2}|`)(?!\s)(.+?)\1", re.DOTALL)
WORD = re.compile(r"[A-Z](?:[a-z0-9]+|[A-Z]*(?![a-z]))")


def classes():
    """(path, name) of each class in a header that is not a test's."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "src/*.h"], check=True, capture_output=True, text=True
    )
    for path in filter(None, listed.stdout.split("\0")):
        if not path.endswith("_test.h") and "/testing/" not in path:
            for found in CLASS.finditer(pathlib.Path(path).read_text(encoding="utf-8")):
                yield path, found[1]


def is_named(name, terms):
    words = r"[\s-]+".join(WORD.findall(name.removesuffix("s")))
    return re.search(rf"\b(?:{name}|{words}s?)\b", terms, re.IGNORECASE) is not None


def main():
    terms = "\n".join(found[2] for found in TERM.finditer(GLOSSARY.read_text(encoding="utf-8")))
    lines = EXEMPT.read_text(encoding="utf-8").splitlines()
    exempt = [line for line in lines if line and not line.startswith("#")]
    found = []
    for path, name in classes():
        if name in exempt:
            exempt.remove(name)
        elif not is_named(name, terms):
            found.append(f"{path}: {GLOSSARY} does not explain what {name} is named after")
    found += [f"{EXEMPT}: no class is named {name}" for name in exempt]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
