"""The documents' examples work: README's commands, and the policy that CONTRIBUTING shows."""

import re
import shlex
import subprocess
import textwrap

import pytest

from harness import BUILD, PATIENCE_S, SOURCE, TRAIN, DeviceProgram, finish, wait_until

OWN_RELEASE = pytest.mark.skipif(BUILD.name != "release", reason="links with the release build")


def blocks(document, language=""):
    """The fenced blocks of a document, without their indentation."""
    text = (SOURCE / document).read_text(encoding="utf-8")
    found = re.findall(rf"^([ ]*)```{language}\n(.*?)^[ ]*```$", text, re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(body) for _, body in found]


def commands(block):
    """The lines of a block that are typed, as words."""
    return [shlex.split(line[2:], comments=True) for line in block.splitlines() if line[:2] == "$ "]


def block_with(words):
    return next(block for block in blocks("README.md") if words in block)


@pytest.fixture
def shell(make_card, tmp_path, monkeypatch):
    """A card of 16 GiB, tandem in the PATH, and ./simulate and ./search in the folder."""
    for name in ("simulate", "search"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\nexec /usr/bin/python3 {DeviceProgram.SCRIPT}\n")
        program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    card = make_card(vram="16G")
    card.env["PATH"] = f"{BUILD / 'bin'}:{card.env['PATH']}"
    card.env["TANDEM_PYTHON"] = "/usr/bin/python3"
    card.env["JUPYTER_DATA_DIR"] = str(tmp_path / "jupyter")
    return card


def test_before_and_after(make_card):
    block = block_with("CUDA_ERROR_OUT_OF_MEMORY")
    before, after = commands(block)
    command = before[: before.index("&")]
    assert before == [*command, "&", *command]
    assert after == ["tandem", "run", *command, "&", "tandem", "run", *command]
    card = make_card()
    card.start_daemon()
    both = [card.shared([TRAIN, *command[1:]]) for _ in range(2)]
    for program in both:
        assert finish(program).splitlines()[-1] in block
    first = card.bare([TRAIN, *command[1:]])
    wait_until(lambda: card.vram_used() > 160 << 20, first, "the first program has its memory")
    _, err = card.bare([TRAIN, *command[1:]]).communicate(timeout=PATIENCE_S)
    assert err.strip() in block


def test_the_commands_of_use(shell):
    lines = commands(block_with("tandem suspend"))
    assert len(lines) == 20 and lines[0][:2] == ["./dev", "install"]
    big = None
    for words in lines[1:]:
        assert words[0] == "tandem"
        if "--name" in words:
            big = shell.spawn(words, stdin=subprocess.PIPE)
            assert big.stdout.readline() == "ready\n"
            assert shell.session_of(big)["name"] == "big"
            continue
        if words[1] == "serve":
            serve = shell.spawn([*words, "--listen", "127.0.0.1:0"])
            assert "http://127.0.0.1:" in serve.stdout.readline()
            serve.terminate()
            finish(serve)
            continue
        assert words[1] == "run" or finish(shell.spawn(words)) != "", words
        if words[1] == "run":
            assert finish(shell.spawn(words)) == "ready\n", words
        if words[1] == "suspend":
            assert shell.session_of(big)["resident_bytes"] == 0
    assert finish(big) == ""


@OWN_RELEASE
def test_the_policy_of_contributing(tmp_path):
    policy, test = blocks("CONTRIBUTING.md", "cpp")
    sources = []
    for text in (policy, test):
        sources.append(tmp_path / text.split("\n", 1)[0].rsplit("/", 1)[1])
        sources[-1].write_text(text)
    program = tmp_path / "smallest_test"
    compiler = ["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-I", SOURCE, "-o", program]
    libraries = [BUILD / "src/core/libtandem_core.a", BUILD / "src/base/libtandem_base.a"]
    more = ["-lgtest_main", "-lgtest", "-lfmt", "-pthread"]
    subprocess.run([*compiler, *sources, *libraries, *more], check=True, timeout=PATIENCE_S)
    ran = subprocess.run([program], capture_output=True, text=True, timeout=PATIENCE_S)
    assert ran.returncode == 0 and "1 test from 1 test suite ran" in ran.stdout, ran.stdout
