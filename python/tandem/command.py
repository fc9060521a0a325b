"""Where the `tandem` command is."""

import os
import shutil
from pathlib import Path

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
