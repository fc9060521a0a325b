"""The end of a process whose parent has ended."""

import os
import select
import threading
from typing import Optional


def end_with(pid: Optional[str]) -> None:
    """Ends this process as soon as the process `pid` has ended.

    For kernels: Jupyter names the process that started them in JPY_PARENT_PID. `tandem run` stands
    between the two, so that the kernel's own parent does not tell.
    """
    try:
        parent = os.pidfd_open(int(pid or 0))
    except (ValueError, OSError):  # not said, or not to be watched from here
        return

    def watch() -> None:
        select.select([parent], [], [])
        os._exit(1)

    threading.Thread(target=watch, name="tandem.parent", daemon=True).start()
