"""`tandem jupyter …`."""

import argparse
import sys

from . import launch, spec

_EXAMPLES = """
examples:
  tandem jupyter install --user         for this user
  tandem jupyter install --sys-prefix   for the virtual environment that is active
  tandem jupyter uninstall
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
    kernel = actions.add_parser("kernel", help="start the kernel; for notebook servers")
    kernel.add_argument("-f", required=True, metavar="FILE", help="connection file")
    kernel.set_defaults(run=lambda options: launch.become_kernel(["-f", options.f]))


def _add_name(parser) -> None:
    parser.add_argument("--name", metavar="N", default=spec.NAME, help="its name (default: %(default)s)")


def _install(options) -> int:
    prefix = sys.prefix if options.sys_prefix else options.prefix
    try:
        folder = spec.install(options.name, options.display_name, options.user, prefix)
    except PermissionError as error:
        print(
            f"tandem: cannot write {error.filename}; add --user to install the kernel for yourself",
            file=sys.stderr,
        )
        return 1
    print(f'Installed the kernel "{options.display_name}" in {folder}')
    return 0


def _uninstall(options) -> int:
    print(f"Removed {spec.uninstall(options.name)}")
    return 0
