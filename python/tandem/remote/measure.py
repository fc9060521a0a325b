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
    and into an array; changed_here, changed_there, unchanged: a remote cell that reads an array of
    `nbytes` after such a change. rate_here, rate_there: copy / (that cell - small_cell).
    """
    import numpy

    space = shell.user_ns
    space["tandem_list"] = [0]
    space["tandem_array"] = array = numpy.zeros(nbytes, numpy.uint8)
    options.setdefault("large", True)
    counter = iter(range(1, 1 << 30))

    def cell(source):
        run_cell(shell, source, where, options).raise_error()

    def change():
        array[:] = next(counter) % 256

    cell("tandem_list[0] += 1")
    found = {
        "plain_cell": _median(lambda: _plain_cell(session(shell, where).link), repeat),
        "small_cell": _median(lambda: cell("tandem_list[0] += 1"), repeat),
        "copy": _median(_copier(array), repeat),
        "changed_here": _median(lambda: cell("tandem_array[0]"), repeat, change),
        "unchanged": _median(lambda: cell("tandem_array[0]"), repeat),
        "changed_there": _median(lambda: cell("tandem_array += 1"), repeat),
    }
    del space["tandem_list"], space["tandem_array"]
    found["added"] = found["small_cell"] - found["plain_cell"]
    for side in ("here", "there"):
        found[f"rate_{side}"] = found["copy"] / (found[f"changed_{side}"] - found["small_cell"])
    return found


def _median(action, repeat, before=lambda: None):
    times = []
    for _ in range(repeat + 1):  # the first one warms up
        before()
        start = time.perf_counter()
        action()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[1:])


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
        print(f"{name:14} {value:8.2f} {unit}")


if __name__ == "__main__":
    main()
