"""Jobs of Slurm, where no real Slurm is needed or none shows it. tests/cluster has a real one."""

import json
import shutil

import pytest
from run_fixtures import desk

from tandem import slurm as places
from tandem.errors import InvalidUse
from tandem.ipython.magics import place_of
from tandem.notebook import slurm, worker
from tandem.notebook.errors import BadInput

__all__ = ["desk"]


class Fake:
    """Commands of Slurm that answer what a test says. Each notes its words in `asked`."""

    def __init__(self, desk, monkeypatch):
        self.folder = desk.folder.parent / "slurm"
        self.folder.mkdir()
        monkeypatch.setenv("PATH", f"{self.folder}:/usr/bin:/bin")
        monkeypatch.setenv("SLURM_JOB_ID", "5")
        self.answers("sbatch", "17")
        self.answers("squeue", "17|PENDING|(Priority)")
        self.answers("sacct", "", status=1)
        self.answers("scancel")

    def answers(self, command, out="", err="", status=0):
        """Sets the answer of a command."""
        path = self.folder / command
        asked = self.folder / "asked"
        path.write_text(
            f"#!/bin/sh\necho {command} \"$@\" in \"$SLURM_JOB_ID\" >> {asked}\n"
            f"echo '{out}'\necho '{err}' >&2\nexit {status}\n"
        )
        path.chmod(0o755)

    def asked(self, command):
        """The lines of words that a command was called with."""
        lines = (self.folder / "asked").read_text().splitlines()
        return [line for line in lines if line.startswith(f"{command} ")]


@pytest.fixture
def call(desk, monkeypatch, capsys):
    """Calls a command of `tandem` in this process: status, output and errors."""
    return lambda *words: desk.call(monkeypatch, capsys, *words)


@pytest.fixture
def fake(desk, monkeypatch):
    yield Fake(desk, monkeypatch)
    shutil.rmtree(desk.records, ignore_errors=True)  # no process belongs to these jobs


def submit(desk, call, *words, source="print(1)", where="slurm:main"):
    desk.notebook("a.ipynb", source)
    path = str(desk.path("a.ipynb"))
    return call("notebook", "submit", "--unshared", "--where", where, *words, path)


@pytest.mark.parametrize(
    "where, options",
    [
        ("slurm", []),
        ("slurm:", []),
        ("slurm:main,gpu-mem=8G:16G", ["--partition=main", "--gpu-mem=8G:16G"]),
        ("slurm,time=1:00:00", ["--time=1:00:00"]),
    ],
)
def test_places_in_slurm(where, options):
    assert places.is_place(where) and places.options_of(where) == options
    assert place_of(where) == where


def test_other_places():
    assert not places.is_place("slurm-login") and place_of("slurm-login") == "ssh://slurm-login"
    with pytest.raises(InvalidUse, match='"--x" is neither a partition'):
        places.options_of("slurm:--x")


@pytest.mark.parametrize(
    "line, error",
    [
        ("#SBATCH mem=1G", '"#SBATCH mem=1G" names no option of sbatch'),
        ("#SBATCH", "names no option"),
        ("#SBATCH--mem=1G", "names no option"),
        ("#SBATCH --comment='x", "No closing quotation"),
        ("#SBATCH --array=1-3", "a notebook is one job, and cannot have --array"),
        ("#SBATCH --arr 1-3", "cannot have --arr"),
        ("#SBATCH -n 1 -a 1-3", "cannot have -a"),
    ],
)
def test_a_bad_line_is_named(line, error):
    with pytest.raises(BadInput) as raised:
        slurm.check("slurm", [line])
    assert error in str(raised.value)


CONTRADICTIONS = [
    ("--now", "slurm", "--now has no effect in Slurm: Slurm has its own queue"),
    ("--memory 8G", "slurm:main", "use --where slurm:main,gpu-mem=8G"),
    ("--class production", "slurm", "use --where slurm,gpu-class=production"),
    ("--gpu soft", "slurm", "the node has its own GPU"),
    ("", "slurm:array=1-3", "cannot have --array"),
    ("", "slurm:-x", '"-x" is neither a partition nor an option such as'),
    ("", "ssh://server", "notebooks run here (local) or in Slurm"),
]


def test_options_that_contradict_the_place_make_no_job(desk, call, fake):
    for words, where, error in CONTRADICTIONS:
        status, out, err = submit(desk, call, *words.split(), where=where)
        assert (status, out, err.count("\n")) == (2, "", 1) and error in err
    status, out, err = submit(desk, call, source="#SBATCH mem=1G")
    assert (status, out) == (2, "") and "names no option of sbatch" in err
    assert not desk.records.exists() and not (fake.folder / "asked").exists()


def test_a_machine_without_slurm(desk, call, monkeypatch):
    monkeypatch.setenv("PATH", str(desk.folder))
    status, _, err = submit(desk, call)
    assert (status, err) == (2, "tandem: sbatch is not in PATH: this machine has no Slurm\n")
    assert not desk.records.exists()


def test_what_sbatch_gets(desk, call, fake):
    """A job of its own, also from within a job; the notebook's lines come after the default."""
    source = "#SBATCH --mem=1G --job-name=mine\n#SBATCH -o x\nprint(1)"
    status, out, err = submit(desk, call, where="slurm:main,time=5", source=source)
    assert (status, out) == (0, "1\n") and "tandem: job 1 is Slurm's job 17, saves into" in err
    assert '"#SBATCH -o x" has no effect' in err
    (words,) = fake.asked("sbatch")
    folder = desk.records / "1"
    assert f"--output={folder}/log --error={folder}/log" in words
    assert words.endswith(f" --partition=main --time=5 {folder}/batch.sh in ")
    script = (folder / "batch.sh").read_text().splitlines()
    assert script[:3] == ["#!/bin/sh", "#SBATCH --job-name=a", "#SBATCH --mem=1G --job-name=mine"]
    submitted = json.loads((folder / "job.json").read_text())["submitted"]
    assert script[-1].endswith(f"-m tandem.notebook.worker 1 {submitted}")


def test_a_job_whose_number_another_has_by_now_runs_nothing(desk, call, fake, capsys):
    submit(desk, call)
    assert worker.main("1", "2020-01-01T00:00:00.000000Z") == 2
    assert "job 1 is another one by now" in capsys.readouterr().err
    assert worker.main("2", "2020-01-01T00:00:00.000000Z") == 2
    assert record_of(desk, call)["started"] is None


def test_the_words_of_a_refusal_and_of_a_warning(desk, call, fake):
    fake.answers("sbatch", "", "sbatch: error: no such\nsbatch: error: failed", status=1)
    assert submit(desk, call)[2] == "tandem: sbatch refused the job: no such; failed\n"
    assert list(desk.records.glob("*")) == []
    fake.answers("sbatch", "17;east", "sbatch: beware")
    status, _, err = submit(desk, call)
    assert status == 0 and "tandem: sbatch: beware\n" in err and "Slurm's job 17," in err


def record_of(desk, call):
    return json.loads(call("jobs", "--json")[1])["jobs"][0]


def test_one_question_for_all_jobs_and_none_for_those_that_have_ended(desk, call, fake):
    submit(desk, call)
    fake.answers("sbatch", "18")
    submit(desk, call, "--output", str(desk.path("b.ipynb")))
    before = len(fake.asked("squeue"))
    fake.answers("squeue", "17|PENDING|(Priority)\n18|COMPLETED|n1")
    states = [job["slurm_state"] for job in json.loads(call("jobs", "--json")[1])["jobs"]]
    assert states == ["PENDING (Priority)", None]
    assert "--jobs=17,18" in fake.asked("squeue")[before] and len(fake.asked("squeue")) == before + 1
    fake.answers("squeue", "17|CANCELLED|None")
    call("jobs")
    before = len(fake.asked("squeue"))
    call("jobs")
    assert len(fake.asked("squeue")) == before and fake.asked("sacct") == []


def test_slurm_that_does_not_answer_leaves_the_job_as_it_is(desk, call, fake):
    submit(desk, call)
    fake.answers("squeue", "", "slurm_load_jobs error: Unable to contact slurm controller", status=1)
    record = record_of(desk, call)
    assert record["state"] == "queued"
    assert record["slurm_state"] == "UNKNOWN (Unable to contact slurm controller)"
    (fake.folder / "squeue").unlink()
    assert record_of(desk, call)["state"] == "queued"


def test_a_job_that_squeue_has_forgotten_is_in_the_accounting_or_has_failed(desk, call, fake):
    forgotten = "slurm_load_jobs error: Invalid job id specified"
    fake.answers("squeue", "", forgotten, status=1)
    submit(desk, call)
    assert record_of(desk, call)["error"] == "it did not start; `tandem logs 1` may say why"
    fake.answers("sacct", "17|TIMEOUT")
    submit(desk, call)
    record = json.loads(call("jobs", "--json")[1])["jobs"][1]
    assert (record["state"], record["exit_status"]) == ("failed", 1)
    assert "ended by Slurm before its first cell: TIMEOUT; " in record["error"]
    assert "--resume 2` goes on" in record["error"]


def record(**members):
    known = {"job": 3, "started": "2026", "cell": 2, "cells": 4, "error": None, "exit_status": None}
    return {**known, **members}


def test_how_a_job_has_ended_by_slurms_word():
    def state(word, **members):
        said = slurm.Said(word) if word else None
        return slurm.changes_at_end(record(**members), said)

    assert state("COMPLETED") == {"state": "done", "exit_status": 0, "finished": 4}
    assert state("CANCELLED")["error"] == "cancelled in cell 2 of 4"
    assert state("FAILED") == state(None) == {"state": "lost"}
    stopped = {"error": "stopped by SIGTERM", "exit_status": 143}
    assert state("FAILED", **stopped) == state(None, **stopped) == {"state": "failed"}
    assert state("CANCELLED", **stopped) == {"state": "cancelled", **stopped}
    limit = state("TIMEOUT", **stopped)
    assert limit["exit_status"] == 143 and "in cell 2 of 4: TIMEOUT" in limit["error"]
