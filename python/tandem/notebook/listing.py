"""`tandem jobs` and `tandem logs`."""

import datetime
import json
import subprocess
import sys
import time

from . import control, kernel, records
from .errors import BadInput

RECENT_S = 24 * 3600
ASK_S = 5  # for the daemon to answer


def jobs(options):
    """Prints the jobs. Returns the exit status."""
    everything = records.all_jobs()
    resumed = {record["resumes"] for record in everything}
    shown = [record for record in everything if options.all or _is_recent(record)]
    waits = _waits(shown)
    for record in shown:
        record["waited_s"] = waits.get(record["kernel_pid"])
    if options.json:
        print(json.dumps({"jobs": shown}))
        return 0
    if not shown:
        print("No jobs. `tandem notebook submit FILE.ipynb` makes one.")
        return 0
    rows = [("JOB", "NAME", "STATE", "CELL", "SINCE", "WAITED"), *map(_row, shown)]
    if any(record["slurm_job"] for record in shown):
        rows = [(*row, word) for row, word in zip(rows, ["SLURM", *map(_slurm, shown)])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(word.ljust(width) for word, width in zip(row, widths)).rstrip())
    for record in shown:
        if record["state"] == "lost" and record["job"] not in resumed:
            print(f"Job {record['job']} is {control.describe(record)}.")
    return 0


def _row(record):
    waited = record["waited_s"]
    return (
        str(record["job"]),
        record["name"],
        record["state"],
        f"{record['finished'] if record['ended'] else record['cell']}/{record['cells']}",
        _length(_age_s(_since(record))),
        "–" if waited is None else _length(waited),
    )


def _slurm(record):
    """Slurm's number and state of a job, as "17 PENDING (Resources)"."""
    return " ".join(filter(None, [record["slurm_job"] or "–", record["slurm_state"]]))


def _since(record):
    """The time at which the job's state began; of a lost one, the last that is known."""
    return record["ended"] or record["started"] or record["submitted"]


def _is_recent(record):
    return record["state"] in records.ACTIVE or _age_s(_since(record)) < RECENT_S


def _age_s(when):
    then = datetime.datetime.strptime(when, "%Y-%m-%dT%H:%M:%S.%fZ")
    now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    return max((now - then).total_seconds(), 0)


def _length(seconds):
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def _waits(shown):
    """Returns how long running kernels were held back for others: seconds by `kernel_pid`."""
    running = {r["kernel_pid"] for r in shown if r["state"] == "running" and records.here(r)}
    if not running - {None}:
        return {}
    try:
        words = [kernel.find_tandem(), "ps", "--json"]
        asked = subprocess.run(words, capture_output=True, text=True, timeout=ASK_S, check=True)
        sessions = json.loads(asked.stdout)["sessions"]
    except (BadInput, OSError, ValueError, KeyError, subprocess.SubprocessError):
        return {}  # not shared, or no daemon
    waits = {}
    for session in sessions:
        for pid in _ancestors(session["pid"]):
            if pid in running:
                waits[pid] = waits.get(pid, 0) + session["waited_s"]
    return waits


def _ancestors(pid):
    while pid and pid > 1:
        yield pid
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                pid = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            return


def logs(options):
    """Prints a job's log; with --follow, until the job has ended. Returns the exit status."""
    job = records.Job(options.job)
    job.seen()
    watch = records.Watch(job)
    with open(job.log, "rb") as log:
        while True:
            alive = options.follow and watch.alive()  # before the read: no last line is missed
            while data := log.read(65536):
                sys.stdout.buffer.write(data)
            sys.stdout.flush()
            if not alive:
                return 0
            time.sleep(records.POLL_S)
