"""`./dev install` and `./dev uninstall`, with manual pages and completion."""

import json
import os
import shutil
import subprocess

import pytest

from harness import BUILD, SOURCE

pytestmark = pytest.mark.skipif(BUILD != SOURCE / "build" / "release", reason="installs the release build")

PATIENCE_S = 600  # it may build


def dev(*words, expect=0):
    done = subprocess.run(
        [SOURCE / "dev", *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout + done.stderr


def tree(prefix):
    return {str(path.relative_to(prefix)) for path in prefix.rglob("*")}


def problems(prefix, runtime):
    """The codes of the problems that the installed doctor finds, without a daemon."""
    env = {**os.environ, "TANDEM_RUNTIME_DIR": str(runtime)}
    words = [prefix / "bin/tandem", "doctor", "--json", "--gpu", "soft"]
    done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=PATIENCE_S, check=False)
    findings = [finding for check in json.loads(done.stdout)["checks"] for finding in check["findings"]]
    return {finding["code"] for finding in findings if finding["severity"] == "problem"}


def test_uninstall_removes_what_was_installed_and_nothing_else(tmp_path):
    prefix = tmp_path / "usr local"
    (prefix / "share/man/man1").mkdir(parents=True)
    (prefix / "share/man/man1/other.1").write_text("another program's")
    before = tree(prefix)
    dev("install", "--prefix", prefix)
    installed = tree(prefix)
    assert {"bin/tandem", "bin/tandemd", "lib/tandem/libtandem.so", "lib/tandem/soft/libcuda.so.1"} <= installed
    version = subprocess.run([prefix / "bin/tandem", "version"], capture_output=True, text=True, check=True)
    assert version.stdout.startswith("tandem ")
    assert problems(prefix, tmp_path / "run") == {"path_unusable", "preload_fails"}, "it has a space"
    dev("install", "--prefix", prefix)  # once more changes nothing
    assert tree(prefix) == installed
    (prefix / "lib/tandem/mine").write_text("the user's")
    dev("uninstall", "--prefix", prefix)
    assert tree(prefix) == before | {"lib", "lib/tandem", "lib/tandem/mine"}
    assert "nothing to remove" in dev("uninstall", "--prefix", prefix, expect=1)


def test_a_prefix_that_did_not_exist_is_gone_again(tmp_path):
    dev("install", "--prefix", tmp_path / "new")
    units = list((tmp_path / "new/lib/systemd").rglob("*.service"))
    assert units and all(f"\nExecStart={tmp_path}/new/bin/tandem" in unit.read_text() for unit in units)
    assert problems(tmp_path / "new", tmp_path / "run") == set()
    dev("uninstall", "--prefix", tmp_path / "new")
    assert tree(tmp_path) == set()


def test_what_an_earlier_installation_had_is_removed(tmp_path):
    dev("install", "--prefix", tmp_path)
    record = tmp_path / "share/tandem/installed"
    (tmp_path / "bin/older").write_text("of an older version")
    record.write_text(record.read_text() + "file bin/older\n")
    dev("install", "--prefix", tmp_path)
    assert "bin/older" not in tree(tmp_path)
    record.write_text("file ../outside\n")
    assert "leaves" in dev("uninstall", "--prefix", tmp_path, expect=1)


def test_documents_come_from_the_declared_options(tmp_path):
    dev("install", "--prefix", tmp_path)
    share = tmp_path / "share"
    tandem, tandemd = ((share / "man" / page).read_text() for page in ("man1/tandem.1", "man8/tandemd.8"))
    for word in (".TH TANDEM 1 ", ".SS run\n", "\\fB\\-\\-oversubscribe\\fR", "Values: soft, cuda."):
        assert word in tandem
    for word in (".TH TANDEMD 8 ", "\\fB\\-\\-spill\\fR \\fIDIR:SIZE\\fR", "Variable: \\fBTANDEM_SPILL\\fR."):
        assert word in tandemd
    bash = (share / "bash-completion/completions/tandem").read_text()
    assert "'run --class') values=" in bash
    asked = f'{bash}\nCOMP_WORDS=(tandem run --class b)\nCOMP_CWORD=3\n_tandem\necho "${{COMPREPLY[@]}}"\n'
    assert subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True).stdout == "batch\n"
    zsh = share / "zsh/site-functions/_tandem"
    assert zsh.read_text().splitlines()[0] == "#compdef tandem"  # or compinit passes over it
    for shell in filter(shutil.which, ("bash", "zsh")):
        subprocess.run([shell, "-n", zsh], check=True)
    assert "complete -c tandem" in (share / "fish/vendor_completions.d/tandem.fish").read_text()
