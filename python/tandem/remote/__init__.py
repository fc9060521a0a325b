"""Remote cells: a notebook's cell runs in a kernel elsewhere, on the notebook's own variables.

`run_cell` is the entry point of the magics. See docs/remote-cells.md.
"""


def run_cell(shell, source, where, options=None):
    """Runs a cell on the worker at `where`; see `tandem.remote.cell.run_cell`."""
    from .cell import run_cell as run

    return run(shell, source, where, options)


def fetch(shell, name):
    """Brings the value of a variable from its worker; see `tandem.remote.cell.fetch`."""
    from .cell import fetch as bring

    return bring(shell, name)


def stop(shell, where=None):
    """Ends the worker at `where`, or all workers of a shell. The variables stay."""
    from .session import sessions

    for found in sessions(shell):
        if where in (None, found.where):
            found.stop()
