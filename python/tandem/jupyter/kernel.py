"""The kernel itself: an ipykernel that loads the magics.

It leads a process group of its own. A notebook server interrupts the group of what it started, which
is `tandem run`; that passes the signal on, and the kernel must not get it twice.
"""

import os
import sys

from ..parent import end_with


def main() -> None:
    os.setpgid(0, 0)
    end_with(os.environ.get("JPY_PARENT_PID"))
    from ipykernel import kernelapp

    # As `python -m ipykernel_launcher`: the folder that it was started in does not hide modules.
    if sys.path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
    application = kernelapp.IPKernelApp.instance()
    application.extra_extensions = ["tandem"]
    application.initialize()
    application.start()


if __name__ == "__main__":
    main()
