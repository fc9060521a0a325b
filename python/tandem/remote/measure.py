"""Measures what a remote cell costs, beside a plain kernel and a plain copy on the same channel.

`python3 -m tandem.remote.measure [--where PLACE] [--bytes N] [--repeat N]` prints a table.
"""

import argparse
import statistics
import time

from .bulk import Channel
from .cell import run_cell
from .session import session


def measure(shell, where="local-worker", nbytes=100_000_000, repeat=7, **options):
    """Returns a dict of medians in milliseconds, and of ratios. Needs numpy.

    plain_cell: a cell without state, as an ordinary request to the same kernel; small_cell: a
    remote cell that changes a list; added: their difference. copy: `nbytes` through the channel
    and into an array; new_here: a remote cell that reads an array of `nbytes` for the first time;
    changed_here, changed_there, unchanged: one that reads an array after such a change. rate_…:
    copy / (that cell - small_cell). The actions take turns, so that a busy machine slows all, and
    the copy has an array that has just changed, as the cell has.
    """
    import numpy

    space = shell.user_ns
    space["tandem_list"] = [0]
    space["tandem_array"] = array = numpy.zeros(nbytes, numpy.uint8)
    spare = array.copy()
    options.setdefault("large", True)
    counter = iter(range(1, 1 << 30))

    def cell(source):
        run_cell(shell, source, where, options).raise_error()

    def change():
        array[:] = next(counter) % 256

    def renew():
        space["tandem_new"] = spare.copy()

    cell("tandem_list[0] += 1")
    found = _medians(
        repeat,
        plain_cell=lambda: _plain_cell(session(shell, where).link),
        small_cell=lambda: cell("tandem_list[0] += 1"),
        copy=(change, _copier(array)),
        changed_here=(change, lambda: cell("tandem_array[0]")),
        unchanged=lambda: cell("tandem_array[0]"),
        changed_there=lambda: cell("tandem_array += 1"),
        new_here=(renew, lambda: cell("tandem_new[0]")),
    )
    del space["tandem_list"], space["tandem_array"], space["tandem_new"]
    found["added"] = found["small_cell"] - found["plain_cell"]
    for name in ("changed_here", "changed_there", "new_here"):
        found[f"rate_{name}"] = found["copy"] / (found[name] - found["small_cell"])
    return found


def _medians(repeat, **actions):
    """Returns the medians of the times of actions, some of which need a preparation."""
    times = {name: [] for name in actions}
    for _ in range(repeat + 1):  # the first one warms up
        for name, action in actions.items():
            before, action = action if isinstance(action, tuple) else (None, action)
            if before is not None:
                before()
            start = time.perf_counter()
            action()
            times[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(found[1:]) for name, found in times.items()}


def _plain_cell(link):
    """Runs a cell without state, as an ordinary request to the worker's kernel."""
    link.plain_request("0")


def _copier(array):
    """Returns a function that copies an array through a channel within this process."""
    import numpy
    import zmq

    context = zmq.Context.instance()
    there = Channel(context, "tcp://127.0.0.1:*", b"key", server=True, shared=True)
    here = Channel(context, there.endpoint, b"key", shared=True)
    target = memoryview(numpy.empty_like(array))

    def copy():
        here.send(1, None, [memoryview(array)])
        target[:] = there.receive(1, 60)[1][0]

    return copy


def main():
    """Prints the measurement of a plain worker."""
    from IPython.core.interactiveshell import InteractiveShell

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--where", default="local-worker", help="the worker's place")
    parser.add_argument("--bytes", type=int, default=100_000_000, help="the size of the array")
    parser.add_argument("--repeat", type=int, default=7, help="cells for each figure")
    given = parser.parse_args()
    shell = InteractiveShell()
    for name, value in measure(shell, given.where, given.bytes, given.repeat, plain=True).items():
        unit = "of a copy" if name.startswith("rate") else "ms"
        print(f"{name:18} {value:8.2f} {unit}")


if __name__ == "__main__":
    main()
