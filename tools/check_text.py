#!/usr/bin/env python3
"""What must hold for every text of the repository, in whatever language.

Lengths are a ratchet: a C++ file stays under MAX_LINES, except those in tools/ratchet.txt, each
with its number of lines, which may only fall.
"""
import pathlib
import re
import subprocess
import sys

MAX_LINES = 500
RATCHET = pathlib.Path("tools/ratchet.txt")
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(?:#[^)]*)?\)")
# A link whose words are a name of the code leads to a file that has the name: [`Gate::Close`](gate.h).
NAME = re.compile(r"`(?:\w+::)*(\w+)`")
# Every machine has these; a path below any other top-level folder is one machine's own.
SYSTEM_FOLDERS = (
    "bin boot dev etc home lib lib64 media mnt opt proc root run sbin srv sys tmp usr var".split()
)


def tracked_files():
    listed = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True)
    return [pathlib.Path(name) for name in listed.stdout.split("\0") if name]


def whitespace_problems():
    empty_tree = subprocess.run(
        ["git", "hash-object", "-t", "tree", "/dev/null"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()
    # LICENSE is copied to the letter.
    shown = subprocess.run(
        ["git", "diff", "--check", empty_tree, "--", ".", ":!LICENSE"],
        capture_output=True, text=True,
    ).stdout
    return [line for line in shown.splitlines() if re.match(r"\S+:\d+: ", line)]


def length_problems(texts):
    allowed = {}
    for line in RATCHET.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            count, path = line.split(maxsplit=1)
            allowed[path] = int(count)
    for path, text in texts.items():
        if path.suffix not in (".h", ".cc"):
            continue
        lines, limit = text.count("\n"), allowed.pop(str(path), None)
        if limit is None and lines > MAX_LINES:
            yield f"{path}: {lines} lines, more than {MAX_LINES}: look for the second thing it does"
        elif limit is not None and lines > limit:
            yield f"{path}: grew from {limit} to {lines} lines; {RATCHET} lets it only shrink"
        elif limit is not None and lines < limit:
            yield f"{path}: shrank to {lines} lines; say so in {RATCHET}"
    for path in allowed:
        yield f"{RATCHET}: names {path}, which is gone"


def link_problems(path, text):
    for words, target in LINK.findall(text):
        if "://" in target or target.startswith("mailto:"):
            continue
        place = path.parent / target
        if not place.exists():
            yield f"{path}: links to {target}, which does not exist"
        elif (name := NAME.fullmatch(words)) and place.is_file():
            if not re.search(rf"\b{name[1]}\b", place.read_text(encoding="utf-8")):
                yield f"{path}: links {words} to {target}, which does not name it"


def place_problems(path, text, place):
    if place and place in text:
        yield f"{path}: names {place}, a folder of one machine"
    for home in re.findall(r"(?<![\w/.])/(?:home|Users)/\w+", text):
        yield f"{path}: names {home}, a folder of one person"


def own_place():
    """The top-level folder this checkout lies under, where it is not one that every machine has."""
    top = pathlib.Path.cwd().parts[1]
    return None if top in SYSTEM_FOLDERS else f"/{top}/"


def syntax_problems(path, text):
    first = text.split("\n", 1)[0]
    if path.suffix == ".py" or re.match(r"#!.*python", first):
        try:
            compile(text, str(path), "exec")
        except SyntaxError as error:
            yield f"{path}:{error.lineno}: {error.msg}"
    elif path.suffix == ".sh" or re.match(r"#!.*\b(ba)?sh\b", first):
        checked = subprocess.run(["bash", "-n", path], capture_output=True, text=True)
        yield from checked.stderr.splitlines()


def main():
    texts = {}
    for path in tracked_files():
        if path.is_symlink() or not path.exists():
            continue
        try:
            texts[path] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # not a text
    place = own_place()
    found = whitespace_problems() + list(length_problems(texts))
    for path, text in texts.items():
        if path.suffix == ".md":
            found += link_problems(path, text)
        found += place_problems(path, text, place)
        found += syntax_problems(path, text)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
