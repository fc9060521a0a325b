"""How a notebook kernel is started under Tandem."""

import getpass
import os
import re
import sys
from pathlib import Path
from typing import Dict, List

from ..command import tandem_command

_LONGEST = 40
_PACKAGES = str(Path(__file__).absolute().parents[2])  # holds the package


def run_name() -> str:
    """Returns what to call the run in `tandem ps`: user and notebook, where that is known."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"user{os.getuid()}"
    notebook = Path(os.environ.get("JPY_SESSION_NAME", "")).stem or "notebook"
    return re.sub(r"[^\w.@+-]+", "-", f"{user}-{notebook}")[:_LONGEST]


def kernel_argv(arguments: List[str], *options: str) -> List[str]:
    """Returns the command that starts an ipykernel under Tandem. `options`: of `tandem run`.

    Raises CommandMissing.
    """
    kernel = [sys.executable, "-m", "tandem.jupyter.kernel", *arguments]
    return [tandem_command(), "run", "--quiet", *options, "--", *kernel]


def kernel_environment() -> Dict[str, str]:
    """Returns the environment of a kernel, which finds this package."""
    paths = [_PACKAGES, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def become_kernel(arguments: List[str]) -> None:
    """Replaces this process by `tandem run` with a kernel. Raises CommandMissing, OSError."""
    argv = kernel_argv(arguments, "--name", run_name())
    os.execve(argv[0], argv, kernel_environment())
