"""Notebooks as jobs of Slurm: the batch script, its submission, what Slurm says of jobs, their end.

1. The process of the batch script is the worker: a signal to the script reaches it.
2. Slurm says whether a job lives. A lock may not be seen on other machines.
3. The options of the command line win over the notebook's `#SBATCH` lines, by Slurm's own rule.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass

from .. import slurm as places
from ..errors import InvalidUse
from . import kernel, settings
from .errors import BadInput

SCRIPT = "batch.sh"
PATIENCE_S = 120  # for Slurm's commands to answer
QUEUED = ("CONFIGURING", "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT")
_OVER = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
         "PREEMPTED", "REVOKED", "TIMEOUT")  # fmt: skip

# Long options of sbatch, and their letters.
_REFUSED = {"array": "a", "clusters": "M", "test-only": "", "wait": "W", "wrap": ""}
_OURS = {"output": "o", "error": "e", "open-mode": "", "input": "i", "chdir": "D"}
_KEPT = (kernel.COMMAND, settings.RUNNING)


# ---- submission


def check(where, lines):
    """Checks the options of a job before it exists. Returns notes for the user. Raises BadInput."""
    try:
        given = places.options_of(where)
    except InvalidUse as error:
        raise BadInput(str(error)) from None
    for option in given:
        _refuse(where, option)
    notes = []
    for line in lines:
        for option in _options_in(line):
            _refuse(line, option)
            if _among(option, _OURS):
                notes.append(
                    f'"{line}" has no effect: `tandem logs` shows what the job writes, and --cwd '
                    "chooses its folder"
                )
    if shutil.which("sbatch") is None:
        raise BadInput("sbatch is not in PATH: this machine has no Slurm")
    return notes


def submit(job, chosen, record):
    """Hands a job over to Slurm. Returns Slurm's number of it. Raises BadInput where Slurm refuses."""
    script = job.path / SCRIPT
    try:
        script.write_text(_script(job, record), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write {script}: {error.strerror}") from None
    log = str(job.log).replace("%", "%%")
    words = ["sbatch", "--parsable", f"--chdir={job.path}", f"--output={log}", f"--error={log}"]
    words += ["--open-mode=append", "--input=/dev/null", *places.options_of(chosen.where)]
    if chosen.launch.name:
        words.append(f"--job-name={chosen.launch.name}")
    code, out, said = _ask([*words, str(script)], env=_environment())
    number = out.strip().partition(";")[0]
    if code != 0 or not number.isdigit():
        raise BadInput(f"sbatch refused the job: {said or 'without a word'}")
    if said:
        print(f"tandem: sbatch: {said}", file=sys.stderr)
    return number


def _script(job, record):
    # Where the environment does not travel (--export=NONE), the worker needs these.
    needed = {**kernel.environment(), "XDG_STATE_HOME": str(job.path.parents[2])}
    exported = [
        f"export {variable}={shlex.quote(needed[variable])}"
        for variable in ("PYTHONPATH", "XDG_STATE_HOME")
        if needed.get(variable)
    ]
    worker = [sys.executable, "-u", "-m", "tandem.notebook.worker", str(job.number)]
    worker.append(record["submitted"])
    default = f"#SBATCH --job-name={re.sub(r'[^A-Za-z0-9_.+-]', '_', record['name'])}"
    text = ["#!/bin/sh", default, *record["sbatch"], *exported, f"exec {shlex.join(worker)}"]
    return "\n".join(text) + "\n"


def _environment():
    """A job's own, also where this process runs in a job; the node has its own daemon."""
    return {
        name: value
        for name, value in kernel.environment(leave_run=True).items()
        if name in ("SLURM_CONF", *_KEPT) or not name.startswith(("SLURM_", "TANDEM_"))
    }


def _options_in(line):
    try:
        words = shlex.split(line[len("#SBATCH") :], comments=True)
    except ValueError as error:
        raise BadInput(f'"{line}": {error}') from None
    if not words or not words[0].startswith("-") or not line[len("#SBATCH")].isspace():
        raise BadInput(f'"{line}" names no option of sbatch: write it as "#SBATCH --mem=1G"')
    return [word for word in words if word.startswith("-")]


def _refuse(text, option):
    if _among(option, _REFUSED):
        raise BadInput(f'"{text}": a notebook is one job, and cannot have {option.split("=")[0]}')


def _among(option, names):
    """Whether an option, which may be shortened as getopt allows, is among `names`."""
    if not option.startswith("--"):
        return option[1:2] in filter(None, names.values())
    word = option[2:].partition("=")[0]
    return any(name == word or (len(word) > 2 and name.startswith(word)) for name in names)


# ---- what Slurm says


class NoAnswer(Exception):
    """Slurm cannot be asked. The text says why, in a few words."""


@dataclass
class Said:
    """What Slurm says of a job."""

    state: str  # in Slurm's words
    where: str = ""  # nodes, or in parentheses the reason to wait

    @property
    def over(self):
        """Whether the job has ended for good."""
        return self.state in _OVER

    def __str__(self):
        return f"{self.state} {self.where}".strip()


def ask(numbers):
    """Returns what Slurm says of jobs, by their numbers; nothing of those that it has forgotten.

    Raises NoAnswer.
    """
    wanted = ",".join(numbers)
    words = ["squeue", "--noheader", "--states=all", f"--jobs={wanted}", "--format=%i|%T|%R"]
    code, out, said = _told(words)
    if code != 0 and "Invalid job id" not in said:
        raise NoAnswer(said or "squeue failed")
    answers = {}
    for number, state, where in _rows(out, 3):
        answers[number] = Said(state, where)
    missing = [number for number in numbers if number not in answers]
    if missing:
        answers.update(_from_accounting(missing))
    return answers


def _from_accounting(numbers):
    """What the accounting, which a cluster need not have, says of jobs that squeue has forgotten."""
    words = ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={','.join(numbers)}"]
    try:
        code, out, _ = _told([*words, "--format=JobIDRaw,State"])
    except NoAnswer:
        return {}
    rows = _rows(out, 2) if code == 0 else []
    return {number: Said(state.split()[0]) for number, state in rows if state}


def _rows(out, columns):
    rows = [line.strip().split("|", columns - 1) for line in out.splitlines()]
    return [row for row in rows if len(row) == columns]


def changes_at_end(record, said):
    """Returns what changes in the record of a job that Slurm has ended.

    `said` is None where Slurm has forgotten the job. The record may have the worker's last words:
    `error`, `exit_status` and `ended`.
    """
    at = f"in cell {record['cell']} of {record['cells']}" if record["cell"] else "before its first cell"
    if said is None or said.state == "FAILED":
        if record["error"] or record["started"]:
            return {"state": "failed" if record["error"] else "lost"}
        error = f"it did not start; `tandem logs {record['job']}` may say why"
        return {"state": "failed", "exit_status": 1, "error": error}
    if said.state == "COMPLETED":  # a record that this machine sees late
        return {"state": "done", "exit_status": 0, "finished": record["cells"]}
    status = record["exit_status"]
    if said.state == "CANCELLED":
        error = record["error"] or f"cancelled {at}"
        return {"state": "cancelled", "exit_status": 143 if status is None else status, "error": error}
    error = f"ended by Slurm {at}: {said.state}; `tandem notebook submit --resume {record['job']}` goes on"
    return {"state": "failed", "exit_status": 1 if status is None else status, "error": error}


# ---- the end


def cancel(number, stage):
    """Asks for a job's end: 0 and 1 by a signal to the worker, 2 as Slurm does. Raises BadInput."""
    if stage == 0:
        _must(["scancel", "--state=PENDING", number])
    words = ["--batch", "--signal=TERM"] if stage < 2 else []
    _must(["scancel", *words, number])


def _must(words):
    try:
        code, _, said = _told(words)
    except NoAnswer as error:
        raise BadInput(str(error)) from None
    if code != 0 and not re.search("Invalid job id|already complet", said):
        raise BadInput(f"{words[0]}: {said}")


def _told(words):
    try:
        return _ask(words)
    except BadInput as error:
        raise NoAnswer(str(error)) from None


def _ask(words, env=None):
    """Returns (status, output, errors in one line) of one of Slurm's commands. Raises BadInput."""
    try:
        ran = subprocess.run(
            words, capture_output=True, text=True, errors="replace", env=env or _environment(),
            stdin=subprocess.DEVNULL, timeout=PATIENCE_S,
        )  # fmt: skip
    except FileNotFoundError:
        raise BadInput(f"{words[0]} is not in PATH") from None
    except subprocess.TimeoutExpired:
        raise BadInput(f"{words[0]} did not answer within {PATIENCE_S} s") from None
    lines = [re.sub(r"^(\w+:? )?error: |^\w+: ", "", line.strip()) for line in ran.stderr.splitlines()]
    said = "; ".join(line for line in lines if line and not line.startswith("Try "))
    return ran.returncode, ran.stdout, said
