#!/usr/bin/env python3
"""What the fuzzing of the PTX front end starts from.

  ptx_corpus.py DIRECTORY

Writes DIRECTORY/corpus: the PTX of this repository, in files and in the tests' strings, and the
kernels inside the installed ffmpeg, each also cut into its kernels. And DIRECTORY/dictionary: the
words of all these, for mutations that make sense.
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

HEAD = b".version 8.0\n.target sm_86\n.address_size 64\n"
# Whatever the tests' pieces of kernels name.
KERNEL = b""".global .align 8 .b8 gv[64]; .const .align 8 .b8 cv[64];
.visible .entry k(.param .u64 in, .param .u64 result, .param .u64 prm)
{
.reg .pred %p, %q, %p<9>; .reg .b16 %ha, %hb, %hc, %hd, %h<9>;
.reg .b32 %wa, %wb, %wc, %wd, %i, %n, %j, %hi, %t, %r<20>; .reg .f32 %f<10>; .reg .f64 %fd<9>;
.reg .b64 %a, %b, %c, %d, %in, %out, %off, %at, %rd<10>;
.shared .align 8 .b8 sv[64]; .local .align 8 .b8 lv[64];
L:
"""
RAW = re.compile(rb'R"(\w*)\((.*?)\)\1"', re.S)
QUOTED = re.compile(rb'(?:"(?:[^"\\\n]|\\.)*"\s*)+')  # several in a row are one string
DIRECTIVE = re.compile(rb"\s*\.(?:global|const|extern|visible|weak|common|entry|func)\b")
PIECE = re.compile(rb"\s*(?:[@.{]|[A-Z]\w*:|[a-z]\w*[. ]).*;", re.S)


def strings_of(source):
    """What the raw and the quoted strings of C++ hold."""
    yield from (text for _, text in RAW.findall(source))
    for run in QUOTED.findall(RAW.sub(b"", source)):
        text = b"".join(re.findall(rb'"((?:[^"\\\n]|\\.)*)"', run))
        yield text.replace(b"\\n", b"\n").replace(b'\\"', b'"')


def as_module(text):
    """The text with what it lacks to be a module; none if it is no PTX."""
    if b".version" in text:
        return text
    if DIRECTIVE.match(text) or b".entry" in text:
        return HEAD + text
    return HEAD + KERNEL + text + b"\nret;\n}\n" if PIECE.match(text) else None


def texts_of_the_tree():
    for file in sorted(ROOT.glob("**/*.ptx")):
        if "build" not in file.relative_to(ROOT).parts:
            yield file.read_bytes()
    tests = ROOT.glob("softgpu/ptx/*_test.cc")
    for source in [ROOT / "tests/driver/kernels.cc", *sorted(tests)]:
        yield from filter(None, map(as_module, strings_of(source.read_bytes())))


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
    forms = (ROOT / "softgpu/ptx/forms.cc").read_bytes()
    words.update(word for text in re.findall(rb'"([^"\n]+)"', forms) for word in WORD.findall(text))
    escaped = sorted(word.decode("ascii", "ignore") for word in words if 1 < len(word) < 40)
    (directory / "dictionary").write_text("".join(f'"{word}"\n' for word in escaped))


if __name__ == "__main__":
    sys.exit(main())
