"""`tandem jupyter …`."""

import argparse
import sys
from pathlib import Path

from . import hub, launch, spec

_EXAMPLES = """
examples:
  tandem jupyter install                       for yourself, or for this virtual environment
  tandem jupyter install --prefix /usr/local   for all users, as root
  tandem jupyter uninstall
  tandem jupyter hub --memory 4G --idle 30m --output tandem_hub.py
"""


def add_commands(commands) -> None:
    """Adds `jupyter` to the subcommands of `tandem`."""
    jupyter = commands.add_parser(
        "jupyter",
        help="install the notebook kernel that shares the GPU",
        description="Install the notebook kernel that shares the GPU, or remove it.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = jupyter.add_subparsers(metavar="ACTION", required=True)
    install = actions.add_parser("install", help=f'add the kernel "{spec.DISPLAY_NAME}"')
    place = install.add_mutually_exclusive_group()
    place.add_argument("--user", action="store_true", help="for this user")
    place.add_argument("--sys-prefix", action="store_true", help="for this Python environment")
    place.add_argument("--prefix", metavar="P", help="below P/share/jupyter/kernels")
    _add_name(install)
    install.add_argument("--display-name", metavar="T", default=spec.DISPLAY_NAME, help="its title")
    install.set_defaults(run=_install)
    uninstall = actions.add_parser("uninstall", help="remove the kernel")
    _add_name(uninstall)
    uninstall.set_defaults(run=_uninstall)
    of_hub = actions.add_parser("hub", help="print what JupyterHub's configuration needs")
    of_hub.add_argument(
        "--memory", metavar="SIZE", default="8G", help="GPU memory of a kernel (default: %(default)s)"
    )
    of_hub.add_argument(
        "--idle", metavar="TIME", default="1h", help="until idle kernels end (default: %(default)s)"
    )
    of_hub.add_argument("--output", metavar="FILE", help="write it to a new file")
    of_hub.set_defaults(run=_hub)
    kernel = actions.add_parser("kernel", help="start the kernel; for notebook servers")
    kernel.add_argument("-f", required=True, metavar="FILE", help="connection file")
    kernel.set_defaults(run=lambda options: launch.become_kernel(["-f", options.f]))


def _add_name(parser) -> None:
    parser.add_argument("--name", metavar="N", default=spec.NAME, help="its name (default: %(default)s)")


def _install(options) -> int:
    in_environment = sys.prefix != sys.base_prefix
    prefix = options.prefix
    if options.sys_prefix or (in_environment and prefix is None and not options.user):
        prefix = sys.prefix
    try:
        folder = spec.install(options.name, options.display_name, prefix)
    except PermissionError as error:
        print(
            f"tandem: cannot write {error.filename}; leave out --prefix to install the kernel for yourself",
            file=sys.stderr,
        )
        return 1
    print(f'Installed the kernel "{options.display_name}" in {folder}')
    print("Choose it in Jupyter: Kernel, Change kernel.")
    return 0


def _hub(options) -> int:
    text = hub.configuration(options.memory, options.idle)
    if options.output is None:
        print(text, end="")
        return 0
    try:
        with Path(options.output).open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        print(f"tandem: {options.output} exists; choose another file", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"tandem: cannot write {options.output}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"Wrote {options.output}; load it in jupyterhub_config.py: load_subconfig('{options.output}')")
    return 0


def _uninstall(options) -> int:
    print(f"Removed {spec.uninstall(options.name)}")
    return 0
