"""The kernel specification: what a notebook server lists and starts."""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Optional

from ..command import tandem_command
from ..errors import Error

NAME = "python3-shared-gpu"
DISPLAY_NAME = "Python 3 (shared GPU)"


class NotInstalled(Error):
    """There is no such kernel, or Jupyter is missing."""


def kernel_json(display_name: str = DISPLAY_NAME) -> dict:
    """Returns the contents of kernel.json, for the Python that runs this.

    Raises CommandMissing.
    """
    return {
        "argv": [tandem_command(), "jupyter", "kernel", "-f", "{connection_file}"],
        "display_name": display_name,
        "language": "python",
        "metadata": {"debugger": True},
        "env": {"TANDEM_PYTHON": sys.executable},
    }


def _manager():
    try:
        from jupyter_client.kernelspec import KernelSpecManager
    except ImportError:
        raise NotInstalled(
            f"{sys.executable} has no jupyter_client; install it (Debian: python3-ipykernel, "
            "pip: ipykernel), or run this with the Python that Jupyter uses (TANDEM_PYTHON)"
        ) from None
    return KernelSpecManager()


def install(
    name: str = NAME, display_name: str = DISPLAY_NAME, prefix: Optional[str] = None
) -> str:
    """Installs the kernel specification, below `prefix` or for this user; returns its folder.

    Raises NotInstalled where Jupyter is missing, OSError where the folder cannot be written.
    """
    manager = _manager()
    try:
        import ipykernel  # noqa: F401
    except ImportError:
        raise NotInstalled(
            f"{sys.executable} has no ipykernel, which the kernel runs; install it "
            "(Debian: python3-ipykernel, pip: ipykernel)"
        ) from None
    with tempfile.TemporaryDirectory(prefix="tandem-kernel-") as made:
        text = json.dumps(kernel_json(display_name), indent=1) + "\n"
        (Path(made) / "kernel.json").write_text(text)
        os.chmod(made, 0o755)
        try:
            return manager.install_kernel_spec(made, name, user=prefix is None, prefix=prefix)
        except shutil.Error as error:  # of the copies; its text is a list of tuples
            source, folder, why = error.args[0][0]
            shutil.rmtree(Path(folder).parent, ignore_errors=True)
            raise NotInstalled(f"cannot write {folder}: {str(why).split(': ')[0]}") from None


def uninstall(name: str = NAME) -> str:
    """Removes the kernel specification; returns the folder that it had. Raises NotInstalled."""
    folder = _manager().find_kernel_specs().get(name)
    if folder is None:
        raise NotInstalled(f"there is no kernel '{name}'; `jupyter kernelspec list` lists them")
    argv = json.loads((Path(folder) / "kernel.json").read_text())["argv"]
    if argv[1:3] != ["jupyter", "kernel"]:
        raise NotInstalled(f"the kernel '{name}' in {folder} is not Tandem's; it stays")
    shutil.rmtree(folder)
    return folder
