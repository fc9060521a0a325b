"""How a notebook kernel is started under Tandem."""

import getpass
import os
import re
import sys
from pathlib import Path
from typing import List, Mapping

from .. import command
from ..command import package_environment, tandem_command

_LONGEST = 40


def run_name(environment: Mapping[str, str], user: str) -> str:
    """Returns what to call the run in `tandem ps`: "anna-lesson" for anna's lesson.ipynb.

    The user alone where the server does not say which notebook it is (JPY_SESSION_NAME).
    """
    path = Path(environment.get("JPY_SESSION_NAME", ""))
    words = [user, path.stem if path.suffix == ".ipynb" else ""]
    words = [re.sub(r"[^\w.@+-]+", "-", word).strip("-") for word in words]
    return command.run_name("-".join(filter(None, words))[:_LONGEST])


def run_options(environment: Mapping[str, str], user: str) -> List[str]:
    """Returns the options of `tandem run` for a user's kernel.

    TANDEM_KERNEL_MEMORY and TANDEM_KERNEL_CLASS set its limit and class, as a hub wants them. Within
    another run that one's options hold.
    """
    if environment.get("TANDEM_RUN"):
        return []
    options = ["--name", run_name(environment, user)]
    for option in ("memory", "class"):
        value = environment.get(f"TANDEM_KERNEL_{option.upper()}")
        options += [f"--{option}", value] if value else []
    return options


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user{os.getuid()}"


def kernel_argv(arguments: List[str], *options: str) -> List[str]:
    """Returns the command that starts an ipykernel under Tandem. `options`: of `tandem run`.

    Raises CommandMissing.
    """
    kernel = [sys.executable, "-m", "tandem.jupyter.kernel", *arguments]
    return [tandem_command(), "run", "--quiet", *options, "--", *kernel]


def become_kernel(arguments: List[str]) -> None:
    """Replaces this process by `tandem run` with a kernel. Raises CommandMissing, OSError."""
    argv = kernel_argv(arguments, *run_options(os.environ, _user()))
    os.execve(argv[0], argv, package_environment())
