#!/usr/bin/env python3
"""What a cell costs that holds the GPU, and one that runs elsewhere.

`bare_ms` and `gpu_ms`: an empty cell without and with `%%gpu`, in a kernel under `tandem run` that has 60 %
of the card and that no other program waits for; `added_ms` is their difference. Paired rounds, medians.

`remote_…`: cells that a notebook sends to a worker's kernel on the same machine. `remote_small_ms` is what
a cell with a small state takes longer than an empty cell of that kernel; `remote_100mb_ms` a cell that reads
100 MB which have changed in place, beyond the small one; `new_100mb_ms` one that reads a new array of 100 MB,
beyond the small one; `channel_100mb_ms` a plain copy of 100 MB over the same channel; `unchanged_100mb_ms` a
cell that reads 100 MB which have not changed. They take turns in each round.
"""

import statistics

from _card import held_share, run, say, small_card
from _kernel import Kernel

HELD = held_share(0.6)


def empty_cells(card, rounds):
    """Milliseconds of an empty cell without and with `%%gpu`."""
    kernel = Kernel(card, "cell")
    kernel.prepare(HELD)
    pairs = [(kernel.seconds("pass"), kernel.seconds("%%gpu\npass")) for _ in range(rounds + 1)][1:]
    kernel.close()
    return [statistics.median(times) * 1e3 for times in zip(*pairs)]


def remote_cells(card, rounds):
    """What tandem.remote.measure says, in milliseconds."""
    kernel = Kernel(card)
    measure = f"measure(get_ipython(), repeat={rounds}, plain=True)"
    found = kernel.run(f"from tandem.remote.measure import measure\nfound = {measure}", "found")
    kernel.close()
    return found


def measure(args):
    rounds = 3 if args.quick else max(1, args.rounds)
    with small_card() as card:
        say("cell: empty cells")
        bare_ms, gpu_ms = empty_cells(card, rounds * 10)
        say("cell: remote cells")
        remote = remote_cells(card, rounds)
    yield {
        "bare_ms": round(bare_ms, 3),
        "gpu_ms": round(gpu_ms, 3),
        "added_ms": round(gpu_ms - bare_ms, 3),
        "remote_small_ms": round(remote["small_cell"] - remote["plain_cell"], 3),
        "remote_100mb_ms": round(remote["changed_here"] - remote["small_cell"], 3),
        "new_100mb_ms": round(remote["new_here"] - remote["small_cell"], 3),
        "channel_100mb_ms": round(remote["copy"], 3),
        "unchanged_100mb_ms": round(remote["unchanged"], 3),
        "rounds": rounds,
    }


if __name__ == "__main__":
    run("cell", __doc__, measure, rounds=7)
