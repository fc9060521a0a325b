"""Where the `tandem` command is, and what processes need that import this package."""

import os
import shutil
from pathlib import Path
from typing import Dict

from .errors import Error


class CommandMissing(Error):
    """The `tandem` command is not installed, or not found."""


def tandem_command() -> str:
    """Returns the path of the `tandem` command: TANDEM_COMMAND, beside this package, or in PATH.

    Raises CommandMissing.
    """
    named = os.environ.get("TANDEM_COMMAND")
    if named and os.access(named, os.X_OK):
        return named
    # Installed as <prefix>/lib/tandem/python/tandem, beside <prefix>/bin/tandem.
    folders = Path(__file__).parents
    beside = folders[4] / "bin" / "tandem" if len(folders) > 4 else None
    found = str(beside) if beside and os.access(beside, os.X_OK) else shutil.which("tandem")
    if found is None:
        raise CommandMissing(
            "the `tandem` command is not in PATH; install Tandem, or set TANDEM_COMMAND to its path"
        )
    return found


def run_name(text: str) -> str:
    """Returns the name of a run for a text: digits alone would be the number of a session."""
    return f"run{text}" if text.isdigit() else text


def package_environment(**variables: str) -> Dict[str, str]:
    """Returns the environment of a process that imports this package: this process's own, changed.

    An installed package needs no change of PYTHONPATH, where it would come before other packages.
    """
    made = {**os.environ, **variables}
    folder = Path(__file__).resolve().parents[1]
    paths = [path for path in made.get("PYTHONPATH", "").split(os.pathsep) if path]
    if folder.name not in ("site-packages", "dist-packages") and str(folder) not in paths:
        made["PYTHONPATH"] = os.pathsep.join([str(folder), *paths])
    return made
