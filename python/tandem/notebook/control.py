"""`tandem notebook submit`, `tandem cancel` and `tandem wait`."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from ..slurm import is_place
from . import document, kernel, records, slurm, worker
from .errors import BadInput
from .settings import Settings, prepare, sbatch_lines

GRACE_S = 10.0  # for a cell to react to an interrupt
SAVE_S = 10.0  # for the notebook to be saved after that
START_S = 60.0  # for a job's process to start, on a busy machine
TIMED_OUT = 124
HERE = "local"  # the place that is no other


# ---- submit


def submit(options):
    """Makes a job and its process. Returns the exit status."""
    settings = _settings_of_job(options) if _names_job(options) else options.make_settings(options)
    prepared = prepare(settings)
    lines = sbatch_lines(prepared.notebook)
    if settings.where:
        prepared.notes += slurm.check(settings.where, lines)
    if prepared.plan.finished == len(document.steps(prepared.notebook)) > 0:
        raise BadInput(f"all cells of {settings.output} are finished: nothing to run")
    refuse_second_writer(settings.output)
    record = {
        "state": "queued",
        "name": settings.launch.name or Path(settings.notebook).stem,
        "notebook": settings.notebook,
        "output": settings.output,
        "cell": 0,
        "cells": len(document.steps(prepared.notebook)),
        "finished": prepared.plan.finished,
        "submitted": records.now(),
        "started": None,
        "ended": None,
        "exit_status": None,
        "error": None,
        "pid": None,
        "kernel_pid": None,
        "now": options.now,
        "resumes": int(options.notebook) if _names_job(options) else None,
        "sbatch": lines,
        "settings": settings.to_record(),
    }
    job, lock = records.create(record, settings.notebook)
    if settings.where:
        _hand_over(job, lock, settings, record)
    else:
        _start(job, lock)
    for note in prepared.notes:
        print(f"tandem: {note}", file=sys.stderr)
    made = job.seen()
    if options.json:
        print(json.dumps(made))
        return 0
    print(job.number, flush=True)
    also = f" is Slurm's job {made['slurm_job']}," if made["slurm_job"] else ""
    print(
        f"tandem: job {job.number}{also} saves into {settings.output}; "
        f"`tandem logs -f {job.number}` follows it",
        file=sys.stderr,
    )
    return 0


def refuse_second_writer(output):
    """Raises BadInput where a job that has not ended saves into `output`."""
    for record in records.all_jobs():
        if record["state"] in records.ACTIVE and _same(record["output"], output):
            raise BadInput(
                f"job {record['job']} saves into {output}, too: choose another file by --output, "
                f"or end it by `tandem cancel {record['job']}`"
            )


def place(options):
    """Returns the place in Slurm of `--where`, or None: this machine. Raises BadInput."""
    where = options.where or HERE
    if where != HERE and not is_place(where):
        raise BadInput(
            f"--where {where}: notebooks run here (local) or in Slurm, such as slurm:main,gpu-mem=8G"
        )
    return None if where == HERE else where


def _same(one, other):
    return os.path.realpath(one) == os.path.realpath(other)


def _names_job(options):
    return options.resume and options.notebook.isdigit() and not os.path.exists(options.notebook)


def _settings_of_job(options):
    record = records.Job(options.notebook).read()
    if record["state"] in records.ACTIVE:
        raise BadInput(f"job {record['job']} has not ended: `tandem wait {record['job']}`")
    settings = Settings.from_record(record["settings"])
    settings.resume = True
    settings.where = place(options) if options.where else settings.where
    return settings


def _hand_over(job, lock, settings, record):
    """Submits the job to Slurm. Where that fails, nothing is left of it."""
    try:
        job.note_slurm_job(slurm.submit(job, settings, record))
    except BaseException:
        job.forget()
        raise
    finally:
        os.close(lock)


def _start(job, lock):
    """Starts the job's process: in a session of its own, without a terminal."""
    ready, ready_writer = os.pipe()
    with open(job.log, "ab") as log:
        words = ["-u", "-m", "tandem.notebook.worker", job.number, lock, ready_writer]
        process = subprocess.Popen(
            [sys.executable, *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(lock, ready_writer),
            start_new_session=True,
            env=kernel.environment(leave_run=True),  # the job outlives that run
        )
    os.close(lock)
    os.close(ready_writer)
    readable, _, _ = select.select([ready], [], [], START_S)
    started = bool(readable) and os.read(ready, 1) == b"."
    os.close(ready)
    if not started:
        process.kill()
        raise BadInput(f"the process of job {job.number} did not start: see {job.log}")
    process.returncode = 0  # it goes on alone: the interpreter need not warn


# ---- cancel


def cancel(options):
    """Ends jobs. Returns 0 where each had not ended before."""
    status = 0
    for number in options.jobs:
        job = records.Job(number)
        record = job.read()
        if record["state"] not in records.ACTIVE:
            print(f"tandem: job {number} has ended before: {record['state']}", file=sys.stderr)
            status = 1
        else:
            _cancel(job, record, options.grace)
            record = job.read()
            print(f"tandem: job {number}: {record['state']}", file=sys.stderr)
        if options.json:
            print(json.dumps(record))
    return status


def _cancel(job, record, grace_s):
    """Interrupts, then ends the kernel after `grace_s`, then the process after SAVE_S."""
    if record["slurm_job"]:
        _cancel_in_slurm(job, record["slurm_job"], grace_s)
        return
    if not records.here(record):
        raise BadInput(f"job {job.number} runs on {record['host']}: cancel it there")
    try:
        process = os.pidfd_open(record["pid"])
    except (ProcessLookupError, TypeError):
        return  # it ended meanwhile, or never started
    try:
        # The lock is held now, so that the process of the record is still the job's.
        if not job.alive():
            return
        job.ask_to_cancel()
        for number, patience_s in (
            (signal.SIGTERM, grace_s),
            (signal.SIGTERM, SAVE_S),
            (signal.SIGKILL, SAVE_S),
        ):
            _send(process, number)
            if select.select([process], [], [], patience_s)[0]:
                return
    finally:
        os.close(process)


def _cancel_in_slurm(job, number, grace_s):
    """As `_cancel`; a job that waits in Slurm's queue leaves it at once."""
    job.ask_to_cancel()
    for stage, patience_s in enumerate((grace_s, SAVE_S, SAVE_S)):
        slurm.cancel(number, stage)
        watch, end = records.Watch(job), time.monotonic() + patience_s
        while watch.alive():
            if time.monotonic() >= end:
                break
            time.sleep(records.POLL_S)
        else:
            return


def _send(process, number):
    try:
        signal.pidfd_send_signal(process, number)
    except ProcessLookupError:
        pass  # it ended meanwhile


# ---- wait


class _TimeIsUp(Exception):
    pass


def wait(options):
    """Waits for jobs. Returns the greatest of their exit statuses."""
    jobs = [records.Job(number) for number in options.jobs]
    for job in jobs:
        job.read()
        _refuse_deadlock(job)
    try:
        with _Alarm(options.timeout):
            for job in jobs:
                job.wait()
    except _TimeIsUp:
        return TIMED_OUT
    statuses = []
    for job in jobs:
        record = job.read()
        if options.json:
            print(json.dumps(record))
        if record["state"] != "done":
            print(f"tandem: job {job.number}: {describe(record)}", file=sys.stderr)
        statuses.append(1 if record["exit_status"] is None else record["exit_status"])
    return max(statuses)


def describe(record):
    """Returns how a job ended, and what to do about it."""
    if record["state"] == "lost":
        at = f"in cell {record['cell']} of {record['cells']}" if record["cell"] else "at its start"
        return (
            f"lost: its process ended {at} without a word; "
            f"`tandem notebook submit --resume {record['job']}` goes on"
        )
    return f"{record['state']}: {record['error']}" if record["error"] else record["state"]


def _refuse_deadlock(job):
    own = os.environ.get(worker.JOB, "")
    if not own.isdigit():
        return
    waited_for = worker.predecessors(job.number) if worker.queues(job.seen()) else []
    behind = int(own) in [one.number for one in waited_for]
    if job.number == int(own) or behind:
        raise BadInput(
            f"job {job.number} waits for job {own}, which runs this command: "
            "submit it with --now"
        )


class _Alarm:
    """Raises _TimeIsUp in its block after `seconds`; None: never."""

    def __init__(self, seconds):
        self._seconds = seconds

    def __enter__(self):
        def ring(*_):
            raise _TimeIsUp

        self._before = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, self._seconds or 0)

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)
