#!/usr/bin/env python3
"""What an allocation and its end cost, with and without Tandem.

Small ones on a driver that does nothing, in 1 to 8 threads at once: `bare_ns` is what the loop costs.
`kept` blocks of the same size are there all the time; with none, each allocation is the first of its
kind and each end the last.
Large ones on the software GPU, or on a card with TANDEM_GPU=cuda: there `bare_ns` is what the driver
needs for the same two calls, and in rows beside it for as much memory by its own create, map, access,
unmap and release: as a whole, and in chunks, since a chunk is what can leave the card by itself. On a
card small ones as well. Nanoseconds of one allocation with its end, in each of
the threads; paired rounds, medians.
"""

import os
import statistics

from _card import MIB, NOOP, Card, on_real_card, run, say, small_card, spread

SMALL, LARGE = (512, 64 << 10, 2 * MIB), (64 * MIB, 256 * MIB, 1024 * MIB)
THREADS_AND_KEPT = ((1, 0), (1, 64), (2, 64), (4, 64), (8, 64))


def row(against, size, threads, kept, rounds, count, bare, tandem):
    """`bare` and `tandem` each do it `count` times and say how many seconds that took."""
    say(f"alloc: {size} bytes, {threads} threads, {kept} kept")
    pairs = [(bare() * 1e9 / count, tandem() * 1e9 / count) for _ in range(rounds + 1)][1:]
    return {
        "bytes": size,
        "threads": threads,
        "bare_ns": round(statistics.median(alone for alone, _ in pairs), 1),
        "tandem_ns": round(statistics.median(shared for _, shared in pairs), 1),
        "kept": kept,
        "against": against,
        "rounds": rounds,
        "spread": spread([shared for _, shared in pairs]),
    }


HELD = 64 * MIB  # a program holds something: an allocation is hardly ever its only one


def start(most, *workers):
    """They work, so that they have the card, with room on it for `most` bytes more: what they allocate
    then is there at once."""
    for worker in workers:
        worker.ask("memory", HELD + most)
        worker.ask("launches", 1)
        worker.ask("memory", HELD)


def measure(args):
    rounds, count = (2, 20) if args.quick else (max(1, args.rounds), 2_000)
    with Card(library=NOOP) as card:
        bare, shared = card.bare("--no-kernels"), card.shared("--no-kernels")
        start(256 * MIB, bare, shared)
        for size in SMALL:
            for threads, kept in THREADS_AND_KEPT:
                words = ("allocations", size, count, threads, kept)
                yield row("noop", size, threads, kept, rounds, count,
                          lambda: bare.seconds(*words), lambda: shared.seconds(*words))  # fmt: skip
    count = 2 if args.quick else 20
    with small_card(TANDEM_SOFT_VRAM="2G") as card:
        bare, shared = card.bare(), card.shared()
        start(max(LARGE), bare, shared)
        against = os.environ.get("TANDEM_GPU", "soft")
        for size in (*SMALL, *LARGE) if on_real_card() else LARGE:
            words = ("allocations", size, count, 1, 0)
            yield row(against, size, 1, 0, rounds, count,
                      lambda: bare.seconds(*words), lambda: shared.seconds(*words))  # fmt: skip
        chunk = card.ask("status")["gpus"][0]["chunk_bytes"]
        for name, piece in (("create to release", max(LARGE)), ("the same in chunks", chunk)):
            for size in LARGE:
                yield row(f"{against}, {name}", size, 1, 0, rounds, count,
                          lambda: bare.seconds("mappings", size, count, piece),
                          lambda: shared.seconds("allocations", size, count, 1, 0))  # fmt: skip


if __name__ == "__main__":
    run("alloc", __doc__, measure, rounds=25)
