"""The background process of one job: waits for its turn, runs the notebook, keeps the record.

`python3 -m tandem.notebook.worker NUMBER LOCK READY`, by `tandem notebook submit`. LOCK and READY
are descriptors: the job's lock, and a pipe that is written to once the record has the process id.
In a job of Slurm it is NUMBER SUBMITTED, by the batch script: the time in the record tells whether
the number is still this job's.

Jobs of one user run one after the other, in the order of their numbers. They would take turns on
the GPU anyway, and each one that runs keeps its memory on the host. A job waits for the locks of
those before it, so that the end of a process, however it ends, lets the next one go on. Slurm's jobs
wait in Slurm's queue only.
"""

import os
import signal
import socket
import sys

from . import records
from .errors import BadInput
from .settings import Settings, prepare

STOPS = (signal.SIGTERM, signal.SIGINT)
JOB = "TANDEM_JOB"  # the number of the job around a process


class _Stopped(Exception):
    def __init__(self, number):
        super().__init__(number)
        self.signal = signal.Signals(number)


def _raise(number, _):
    raise _Stopped(number)


def _on_stop(handler):
    for number in STOPS:
        signal.signal(number, handler)


class _Worker:
    def __init__(self, number, ready=None):
        self._job = records.Job(number)
        self._record = self._job.stored()
        self._ready = ready  # None: in a job of Slurm

    def run(self):
        """Returns the exit status, which the record has too."""
        try:
            _on_stop(_raise)
            self._note(pid=os.getpid(), host=socket.gethostname())
            if self._ready is not None:
                os.write(self._ready, b".")
                os.close(self._ready)
                self._wait_for_turn()
            status, state, error = self._run_notebook()
        except _Stopped as stopped:
            status, state = 128 + stopped.signal, "stopped"
            error = f"stopped by {stopped.signal.name} before its first cell"
        except BadInput as problem:
            status, state, error = 2, "failed", str(problem)
            print(f"tandem: {error}", file=sys.stderr)
        except Exception as problem:  # the record must not say that the job runs
            self._end(1, "failed", f"{type(problem).__name__}: {problem}")
            raise
        return self._end(status, state, error)

    def _end(self, status, state, error):
        _on_stop(signal.SIG_IGN)
        if state == "stopped":
            state = "cancelled" if self._job.cancel_asked() else "failed"
            if state == "failed" and self._ready is None:
                state = "running"  # until Slurm says why it stopped the job, or starts it again
        self._note(state=state, exit_status=status, error=error, ended=records.now())
        return status

    def _wait_for_turn(self):
        if not self._record["now"]:
            for before in predecessors(self._job.number):
                before.wait()

    def _run_notebook(self):
        again = self._ready is None and self._record["started"] and self._record["finished"]
        cleared = {"ended": None, "exit_status": None, "error": None}  # where Slurm starts it again
        self._note(state="running", started=records.now(), **cleared)
        settings = Settings.from_record(self._record["settings"])
        source = self._job.path / records.NOTEBOOK
        if again:
            settings.resume = True
        elif settings.in_place and _content(settings.notebook) != _content(source):
            raise BadInput(f"{settings.notebook} has changed since it was submitted: submit again")
        prepared = prepare(settings, source)
        from . import runner
        from .display import Display

        display = Display(sys.stdout, sys.stdout)
        for note in prepared.notes:
            display.note(note)
        outcome = runner.run(prepared, display, self._note, STOPS, self._job.cancel_asked)
        return outcome.status, outcome.state, outcome.error

    def _note(self, **changes):
        self._record.update(changes)
        try:
            self._job.write(self._record)
        except OSError as error:  # a full disk does not stop the notebook
            print(f"tandem: cannot write the job's record: {error.strerror}", file=sys.stderr)


def predecessors(number):
    """Returns the jobs that the job of this number waits for, if it was not submitted by --now."""
    before = [record for record in records.all_seen() if record["job"] < number]
    return [
        records.Job(record["job"])
        for record in before
        if record["state"] in records.ACTIVE and queues(record) and records.here(record)
    ]


def queues(record):
    """Whether a job waits for the user's earlier ones, and later ones for it."""
    return not record["now"] and not record["settings"].get("where")


def _content(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None


def _check_number(job, submitted):
    if job.stored()["submitted"] != submitted:
        raise BadInput(f"the folder of this job is gone; job {job.number} is another one by now")


def main(number, *rest):
    """Runs the job. `rest` is LOCK, READY or SUBMITTED. LOCK stays open until the process ends."""
    ready = None
    if len(rest) == 1:
        try:
            _check_number(records.Job(number), rest[0])
        except BadInput as problem:
            print(f"tandem: {problem}", file=sys.stderr)
            return 2
    else:
        lock, ready = map(int, rest)
        os.set_inheritable(lock, False)
        os.set_inheritable(ready, False)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.environ[JOB] = number
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    return _Worker(number, ready).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
