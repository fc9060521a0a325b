"""One folder for each job: its record, its log, a copy of its notebook, and a lock.

1. A folder appears complete and locked: it is made under another name, then renamed.
2. The job's process holds the lock from then until it ends, however it ends. A job that is queued
   or running by its record and does not hold the lock is lost. No process id decides that.
3. Only the job's process writes its record, which is replaced atomically.

Jobs of Slurm differ:
4. `tandem notebook submit` holds the lock until the folder has Slurm's number of the job. From then
   on Slurm says whether the job lives. The folder may be seen by several machines, the lock need not.
5. Where Slurm has ended the job and the record does not say so, the first command that sees it
   completes the record, with the lock.
"""

import datetime
import fcntl
import json
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path

from . import slurm
from .errors import BadInput

ACTIVE = ("queued", "running")
POLL_S, ASK_SLURM_S = 0.2, 10  # between two looks at a record; the longest between two questions
_RECORD, _LOCK, LOG, NOTEBOOK, CANCEL = "job.json", "lock", "log", "notebook.ipynb", "cancel"
_SLURM = "slurm_job"  # the file with Slurm's number


def folder():
    """Returns the folder of all jobs of this user, which may not exist."""
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.local/state")
    return Path(base) / "tandem" / "jobs"


def now():
    """Returns the time as text, in UTC."""
    return f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%S.%fZ}"


class Job:
    """One job, by its number."""

    def __init__(self, number):
        self.number = int(number)
        self.path = folder() / str(self.number)

    @property
    def log(self):
        """The path of the log."""
        return self.path / LOG

    def read(self):
        """Returns the record, with the state `lost` where that is so. Raises BadInput."""
        return _by_slurm([self.seen()])[0]

    def seen(self):
        """Returns the record without asking Slurm. Raises BadInput."""
        # The order matters: a job that ends meanwhile is then seen as ended, not as lost.
        alive, slurm_job = self.alive(), self._slurm_job()
        record = self.stored()
        if record["state"] in ACTIVE and not alive and slurm_job is None:
            record["state"] = "lost"
        noted = {"slurm_job": slurm_job, "slurm_state": None}
        return {"job": self.number, **record, **noted, "log": str(self.log)}

    def stored(self):
        """Returns the record as it was written. Raises BadInput."""
        try:
            return json.loads((self.path / _RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise BadInput(
                f"there is no job {self.number}; `tandem jobs --all` lists all"
            ) from None

    def write(self, record):
        """Replaces the record. REQUIRES: this process holds the lock, or is the worker of Slurm."""
        _write_record(self.path, record)

    def note_slurm_job(self, number):
        """Notes Slurm's number of the job. REQUIRES: this process holds the lock."""
        made = self.path / f".{_SLURM}"
        made.write_text(number)
        made.rename(self.path / _SLURM)

    def complete(self, changes):
        """Changes the record of a job that Slurm has ended, unless another command does."""
        try:
            with open(self.path / _LOCK, "r+b") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                stored = self.stored()
                if stored["state"] in ACTIVE:
                    self.write({**stored, **changes})
        except (OSError, BadInput):
            pass  # read-only, full, without locks, or removed: the next command tries again

    def forget(self):
        """Removes the job's folder."""
        shutil.rmtree(self.path, ignore_errors=True)

    def alive(self):
        """Whether a process holds the lock."""
        try:
            lock = self._open_lock()
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(lock)

    def wait(self):
        """Returns when the job has ended: no process holds the lock, or Slurm says so."""
        lock = self._open_lock()
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
        finally:
            os.close(lock)
        watch = Watch(self)
        while watch.alive():
            time.sleep(POLL_S)

    def ask_to_cancel(self):
        """Notes that the user wants the job's end."""
        (self.path / CANCEL).touch()

    def cancel_asked(self):
        """Whether the user wants the job's end."""
        return (self.path / CANCEL).exists()

    def _slurm_job(self):
        try:
            return (self.path / _SLURM).read_text()
        except OSError:
            return None

    def _open_lock(self):
        return os.open(self.path / _LOCK, os.O_RDONLY | os.O_CLOEXEC)


class Watch:
    """Tells again and again whether a job lives; asks Slurm at growing intervals."""

    def __init__(self, job):
        self._job = job
        self._next, self._pause_s = 0.0, POLL_S

    def alive(self):
        """Whether the job has not ended."""
        record = self._job.seen()
        if record["slurm_job"] is None:
            return self._job.alive()  # it may write after its record says that it has ended
        if record["state"] not in ACTIVE:
            return False
        if time.monotonic() >= self._next:
            alive = self._job.read()["state"] in ACTIVE
            self._next = time.monotonic() + self._pause_s
            self._pause_s = min(2 * self._pause_s, ASK_SLURM_S)
            return alive
        return True


def create(record, notebook):
    """Makes a job with a copy of `notebook`. Returns (Job, lock), the lock as a descriptor.

    The lock is held as long as a process has the descriptor. Raises BadInput.
    """
    parent, made = folder(), None
    try:
        parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
        _write_record(made, {**record, "host": socket.gethostname()})
        shutil.copyfile(notebook, made / NOTEBOOK)
        (made / LOG).touch(mode=0o600)
        lock = os.open(made / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        number = max(numbers(), default=0) + 1
        while not _renamed(made, parent / str(number)):
            number += 1
    except OSError as error:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
        raise BadInput(
            f"cannot make a job in {parent}: {error.strerror}; XDG_STATE_HOME names another place"
        ) from None
    return Job(number), lock


def numbers():
    """Returns the numbers of all jobs, in ascending order."""
    try:
        return sorted(int(name) for name in os.listdir(folder()) if name.isdigit())
    except FileNotFoundError:
        return []


def all_jobs():
    """Returns the records of all jobs, in ascending order of their numbers."""
    return _by_slurm(all_seen())


def all_seen():
    """As `all_jobs`, without asking Slurm."""
    records = []
    for number in numbers():
        try:
            records.append(Job(number).seen())
        except BadInput:
            pass  # removed meanwhile
    return records


def _by_slurm(seen):
    """Returns the records with what Slurm says of those jobs that have not ended by their records."""
    asked = [r["slurm_job"] for r in seen if r["slurm_job"] and r["state"] in ACTIVE]
    if not asked:
        return seen
    try:
        said = slurm.ask(asked)
    except slurm.NoAnswer as error:
        unknown = {"slurm_state": f"UNKNOWN ({error})"}
        return [{**r, **(unknown if r["slurm_job"] in asked else {})} for r in seen]
    return [_told(record, said) if record["slurm_job"] in asked else record for record in seen]


def _told(record, said):
    word = said.get(record["slurm_job"])
    if word is not None and not word.over:
        state = "queued" if word.state in slurm.QUEUED else "running"
        active = {"state": state, "slurm_state": str(word)}
        return {**record, **active, "ended": None, "exit_status": None, "error": None}
    job = Job(record["job"])
    try:
        record = job.seen()  # it may have ended by itself meanwhile
    except BadInput:
        return record  # removed meanwhile
    if record["state"] in ACTIVE:
        changes = {"ended": record["ended"] or now(), **slurm.changes_at_end(record, word)}
        job.complete(changes)
        record.update(changes)
    return record


def here(record):
    """Whether the job runs, or ran, on this host: others may share the folder."""
    return record["host"] == socket.gethostname()


def _renamed(source, target):
    try:
        source.rename(target)
        return True
    except OSError:
        if target.exists():
            return False
        raise


def _write_record(path, record):
    temporary = path / f".{_RECORD}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(record, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path / _RECORD)
