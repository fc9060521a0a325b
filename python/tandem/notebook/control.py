"""`tandem notebook submit`, `tandem cancel` and `tandem wait`."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from . import document, kernel, records, worker
from .errors import BadInput
from .settings import Settings, prepare, sbatch_lines

GRACE_S = 10.0  # for a cell to react to an interrupt
SAVE_S = 10.0  # for the notebook to be saved after that
START_S = 60.0  # for a job's process to start, on a busy machine
TIMED_OUT = 124


# ---- submit


def submit(options):
    """Makes a job and its process. Returns the exit status."""
    settings = _settings_of_job(options) if _names_job(options) else options.make_settings(options)
    prepared = prepare(settings)
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
        "sbatch": sbatch_lines(prepared.notebook),
        "settings": settings.to_record(),
    }
    job, lock = records.create(record, settings.notebook)
    _start(job, lock)
    for note in prepared.notes:
        print(f"tandem: {note}", file=sys.stderr)
    if options.json:
        print(json.dumps(job.read()))
        return 0
    print(job.number, flush=True)
    print(
        f"tandem: job {job.number} saves into {settings.output}; "
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
    return settings


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
    waited_for = [] if job.read()["now"] else worker.predecessors(job.number)
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
