"""One folder for each job: its record, its log, a copy of its notebook, and a lock.

1. A folder appears complete and locked: it is made under another name, then renamed.
2. The job's process holds the lock from then until it ends, however it ends. A job that is queued
   or running by its record and does not hold the lock is lost. No process id decides that.
3. Only the job's process writes its record, which is replaced atomically.
"""

import datetime
import fcntl
import json
import os
import shutil
import socket
import tempfile
from pathlib import Path

from .errors import BadInput

ACTIVE = ("queued", "running")
_RECORD, _LOCK, LOG, NOTEBOOK, CANCEL = "job.json", "lock", "log", "notebook.ipynb", "cancel"


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
        # The order matters: a job that ends meanwhile is then seen as ended, not as lost.
        alive = self.alive()
        try:
            record = json.loads((self.path / _RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise BadInput(
                f"there is no job {self.number}; `tandem jobs --all` lists all"
            ) from None
        if record["state"] in ACTIVE and not alive:
            record["state"] = "lost"
        return {"job": self.number, **record, "log": str(self.log)}

    def write(self, record):
        """Replaces the record. REQUIRES: this process holds the lock."""
        _write_record(self.path, record)

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
        """Returns when no process holds the lock."""
        lock = self._open_lock()
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
        finally:
            os.close(lock)

    def ask_to_cancel(self):
        """Notes that the user wants the job's end."""
        (self.path / CANCEL).touch()

    def cancel_asked(self):
        """Whether the user wants the job's end."""
        return (self.path / CANCEL).exists()

    def _open_lock(self):
        return os.open(self.path / _LOCK, os.O_RDONLY | os.O_CLOEXEC)


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
    records = []
    for number in numbers():
        try:
            records.append(Job(number).read())
        except BadInput:
            pass  # removed meanwhile
    return records


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
