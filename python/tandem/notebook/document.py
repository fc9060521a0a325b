"""Notebooks as files: reading with clear errors, numbering of cells, atomic saves.

Imports nbformat where it needs it: a job that is queued, or a listing, does not.
"""

import errno
import hashlib
import json
import os
import tempfile
import warnings
from pathlib import Path

from .errors import BadInput, SaveFailed

FORMAT = 4  # the major version of the notebook format that Tandem runs


def read(path):
    """Returns the notebook at `path` in format 4. Raises BadInput."""
    import nbformat

    try:
        text = Path(path).read_text(encoding="utf-8")
        raw = json.loads(text)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"{path} is not a notebook: {error}") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("nbformat"), int):
        raise BadInput(f"{path} is not a notebook: it names no notebook format")
    if raw["nbformat"] > FORMAT:
        raise BadInput(
            f"{path} has notebook format {raw['nbformat']}, and Tandem reads up to {FORMAT}: "
            f"save it in format {FORMAT}, or update Tandem"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about cells without ids: reading adds them
            notebook = nbformat.reads(text, as_version=FORMAT)
            nbformat.validate(notebook)
    except Exception as error:  # nbformat raises its own, KeyError and AttributeError
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(f"{path} is not a valid notebook: {reason}") from None
    return notebook


def steps(notebook):
    """Returns the cells to run, in order: the code cells that are not empty.

    A step's number, from 1, is the `In [N]` that Jupyter shows after a run from top to bottom.
    """
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def tags(cell):
    """Returns the tags of a cell."""
    return cell.metadata.get("tags", [])


def new_code_cell(notebook, source, tag):
    """Returns a code cell that is valid in `notebook`."""
    import nbformat

    cell = nbformat.v4.new_code_cell(source, metadata={"tags": [tag]})
    if notebook.nbformat_minor < 5:
        cell.pop("id", None)
    return cell


def digest(cell):
    """Returns a digest of a cell's source."""
    return hashlib.sha256(cell.source.encode()).hexdigest()


def check_output(path):
    """Raises BadInput where a notebook cannot be saved at `path`."""
    path = Path(path)
    if path.suffix != ".ipynb":
        raise BadInput(f"the output file {path} must end in .ipynb")
    if path.is_dir():
        raise BadInput(f"the output {path} is a folder: name a file")
    try:
        with tempfile.NamedTemporaryFile(dir=path.resolve().parent, prefix=".tandem-"):
            pass
    except OSError as error:
        raise BadInput(
            f"cannot write into {path.resolve().parent}: {error.strerror}; "
            "choose another place with --output"
        ) from None


def save(notebook, path):
    """Replaces the file at `path` by `notebook`, atomically. Raises SaveFailed.

    A reader, and a machine that crashes, sees the old content or the new one. A symbolic link
    stays, and the file that it names is replaced. The mode of an existing file stays.
    """
    import nbformat

    text = nbformat.writes(notebook) + "\n"
    target = Path(path).resolve()
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            _keep_owner_and_mode(file.fileno(), target)
            os.fsync(file.fileno())
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except OSError as error:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        hint = "; free some room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise SaveFailed(f"cannot save {path}: {error.strerror}{hint}") from None


def _keep_owner_and_mode(handle, target):
    try:
        old = os.stat(target)
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        os.fchmod(handle, 0o666 & ~umask)
        return
    if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
        try:
            os.fchown(handle, old.st_uid, old.st_gid)
        except PermissionError:
            pass  # only root can give a file away
    os.fchmod(handle, old.st_mode & 0o777)


def _sync_folder(folder):
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
