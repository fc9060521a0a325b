#!/usr/bin/env python3
"""What the fuzzing of the PTX front end starts from.

  ptx_corpus.py DIRECTORY

Writes DIRECTORY/corpus: the PTX of this repository, what earlier findings left in
src/softgpu/ptx/findings, and the kernels inside the installed ffmpeg, each also cut into its
kernels. And DIRECTORY/dictionary: the words of all these, for mutations that make sense.
"""
import hashlib
import pathlib
import re
import subprocess
import sys
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORD = re.compile(rb"[.%]?[A-Za-z_][\w.]*(?::[\w.:]+)?")
NUMBERED = re.compile(rb"%?[A-Za-z_$]+\d+")  # registers and labels: their names mean nothing


def texts_of_the_tree():
    for file in sorted(ROOT.glob("**/*.ptx")):
        if "build" not in file.relative_to(ROOT).parts:
            yield file.read_bytes()
    for source in ("tests/driver/kernels.cc", "src/softgpu/ptx/run_test.cc"):
        for text in re.findall(rb'R"(?:\w*)\((.*?)\)(?:\w*)"', (ROOT / source).read_bytes(), re.S):
            if b".entry" in text:
                yield text
    yield from (file.read_bytes() for file in sorted((ROOT / "src/softgpu/ptx/findings").glob("*")))


def texts_of_ffmpeg():
    listing = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"libavfilter\.so\S* .*=> (\S+)", listing)
    image = pathlib.Path(found[1]).read_bytes() if found else b""
    for member in re.finditer(re.escape(b"\x1f\x8b\x08"), image):
        try:
            text = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(image[member.start() :])
        except zlib.error:
            continue
        if b".version" in text:
            yield text.rstrip(b"\0")


def cut(text):
    """The text, and each of its kernels under its own head."""
    yield text
    starts = [match.start() for match in re.finditer(rb"^\s*(?:\.\w+\s+)*\.entry", text, re.M)]
    for begin, end in zip(starts, starts[1:] + [len(text)]):
        yield text[: starts[0]] + text[begin:end]


def main():
    directory = pathlib.Path(sys.argv[1])
    corpus = directory / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    words = set()
    for whole in [*texts_of_the_tree(), *texts_of_ffmpeg()]:
        words.update(word for word in WORD.findall(whole) if not NUMBERED.fullmatch(word))
        for text in cut(whole):
            (corpus / hashlib.sha1(text).hexdigest()).write_bytes(text)
    forms = (ROOT / "src/softgpu/ptx/forms.cc").read_bytes()
    words.update(word for text in re.findall(rb'"([^"\n]+)"', forms) for word in WORD.findall(text))
    escaped = sorted(word.decode("ascii", "ignore") for word in words if 1 < len(word) < 40)
    (directory / "dictionary").write_text("".join(f'"{word}"\n' for word in escaped))


if __name__ == "__main__":
    sys.exit(main())
