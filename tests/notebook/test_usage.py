"""Mistakes in the words of the Python commands, times, and the environment of kernels."""

import os

import pytest
import run_fixtures  # noqa: F401  puts the package on the path

from tandem.__main__ import main
from tandem.command import package_environment, run_name
from tandem.errors import InvalidUse
from tandem.jupyter.launch import run_options
from tandem.notebook import kernel
from tandem.units import parse_time


@pytest.mark.parametrize(
    "words, told",
    [
        ("jupyter instal", 'tandem jupyter has no command "instal"; did you mean install?'),
        ("jupyter zzz", 'tandem jupyter has no command "zzz"; `tandem jupyter --help` lists those'),
        ("jupyter install --usr", "tandem jupyter install has no option --usr; did you mean --user?"),
        ("notebook rum x.ipynb", 'tandem notebook has no command "rum"; did you mean run?'),
        ("notebook run --in-palce x.ipynb", "has no option --in-palce; did you mean --in-place?"),
        ("notebook run --zzz x.ipynb", "has no option --zzz; the notebook's own options follow after --"),
        ("notebook run --class btch x.ipynb", "'btch' is none of production, interactive, batch,"),
        ("jobs --alll", "tandem jobs has no option --alll; did you mean --all?"),
        ("jobs --al", "tandem jobs has no option --al; did you mean --all?"),
        ("logs --folow", "tandem logs has no option --folow; did you mean --follow?"),
        ("cancel --grce 3 3", "tandem cancel has no option --grce; did you mean --grace?"),
        ("wait --timout=3 3", "tandem wait has no option --timout; did you mean --timeout?"),
        ("--hepl", "tandem has no option --hepl; did you mean --help?"),
        ("wait --timeout --json 3", "--timeout: expected one argument"),
    ],
)
def test_a_mistyped_word_gets_a_suggestion(capsys, words, told):
    with pytest.raises(SystemExit) as end:
        main(words.split())
    err = capsys.readouterr().err
    assert end.value.code == 2
    assert err.startswith("tandem: ") and told in err and err.count("\n") == 1


def test_times_need_a_unit_as_elsewhere_in_tandem():
    assert parse_time("0") == 0 and parse_time(0.2) == 0.2 and parse_time("1h30m") == 5400
    for text in ("0.2", "30", ".5"):
        with pytest.raises(InvalidUse, match=f"has no unit; write for example '{text}s'"):
            parse_time(text)


def test_a_notebook_whose_name_is_a_number_gets_a_name_that_is_none(monkeypatch):
    monkeypatch.delenv("TANDEM_RUN", raising=False)
    for name, called in (("7", "run7"), ("7b", "7b"), ("lesson 1", "lesson 1")):
        assert run_name(name) == called
        assert called in kernel.tandem_run(kernel.Launch(tandem="true"), name)
    assert run_options({}, "1234") == ["--name", "run1234"]


def test_a_process_of_ours_imports_this_package_once(monkeypatch):
    package = str(run_fixtures.PACKAGES)
    monkeypatch.setenv("PYTHONPATH", "/some/where")
    made = package_environment(MORE="1")
    assert made["PYTHONPATH"] == f"{package}{os.pathsep}/some/where" and made["MORE"] == "1"
    monkeypatch.setenv("PYTHONPATH", made["PYTHONPATH"])
    assert package_environment()["PYTHONPATH"] == made["PYTHONPATH"]
