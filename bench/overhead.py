#!/usr/bin/env python3
"""What Tandem costs a program that has the card to itself and fits.

Each program twice, without Tandem and with it, as two new processes in each round, since some are
faster than others all their lives; in a round a piece of each in turns. On the software GPU all of it
runs on one processor: which one a thread of that GPU is given is chance, and there libtandem.so's own
thread takes nothing that the program does not miss. `slowdown` is the median of the rounds' ratios, and
lies within `error` of the true one in 19 of 20 measurements.
`launches`: one empty kernel after the other; `rewrite`: kernels that write all of 16 MiB; `copies`:
1 MiB to the card and back; `train`: the example, from its first step to its last.
"""

import json
import math
import os
import statistics
import subprocess

from _card import MIB, PATIENCE_S, SHIM, TRAIN, Failed, on_real_card, run, say, small_card, spread

HELD = 16 * MIB
PROGRAMS = {  # words for the worker, how often in a piece, and in one of a quick run
    "launches": (("launches",), 5_000, 500),
    "rewrite": (("rewrite",), 4, 1),
    "copies": (("copies", "up", MIB), 100, 10),
}
PIECES = 16  # of each, in a round
LAUNCHES = {"launches": 1, "rewrite": HELD // MIB, "copies": 1}  # in each


def train(card, preload, steps):
    """The seconds that `steps` steps took, and the memory's checksum at the end."""
    env = {**card.env, **({"LD_PRELOAD": SHIM} if preload else {})}
    argv = [TRAIN, "--json", "--memory", str(HELD), "--steps", str(steps)]
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, timeout=PATIENCE_S)
    if done.returncode != 0:
        raise Failed("train failed")
    report = json.loads(done.stdout)
    return report["seconds"], report["checksum"]


def error(ratios):
    """How far the median may be from the true one: half of the interval, between two of the ordered
    values, that holds that with a probability of 95 % (Conover, Practical Nonparametric Statistics,
    3rd ed., section 3.2; None for too few)."""
    ordered, count = sorted(ratios), len(ratios)
    reach = 1.96 * math.sqrt(count) / 2
    low, high = math.floor(count / 2 - reach) - 1, math.ceil(count / 2 + reach)
    return round((ordered[high] - ordered[low]) / 2, 5) if low >= 0 and high < count else None


def row(program, count, per_second, pairs):
    ratios = [shared / alone for alone, shared in pairs]
    bare_s = statistics.median(alone for alone, _ in pairs)
    return {
        "program": program,
        "launches_per_second": round(per_second / bare_s, 1) if per_second else None,
        "bare_s": round(bare_s, 6),
        "tandem_s": round(statistics.median(shared for _, shared in pairs), 6),
        "slowdown": round(statistics.median(ratios), 5),
        "rounds": len(pairs),
        "spread": spread(ratios),
        "error": error(ratios),
        "count": count,
    }


def pair(card, quick):
    """Of each program the median seconds of a piece, without Tandem and with it."""
    bare, shared = card.bare(), card.shared()
    for worker in (bare, shared):
        worker.ask("memory", HELD)
    medians = {}
    for program, (words, usual, fewer) in PROGRAMS.items():
        pieces = []
        for number in range(PIECES + 1):  # the first warms up
            order = (bare, shared) if number % 2 else (shared, bare)
            took = {worker: worker.seconds(*words, fewer if quick else usual) for worker in order}
            pieces.append((took[bare], took[shared]))
        medians[program] = tuple(statistics.median(times) for times in zip(*pieces[1:]))
    bare.close()
    shared.close()
    return medians


def measure(args):
    rounds = 2 if args.quick else max(1, args.rounds)
    if not on_real_card():
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with small_card() as card:
        told = []
        for number in range(rounds):
            say(f"overhead: round {number + 1} of {rounds}")
            told.append(pair(card, args.quick))
        for program, (_, usual, fewer) in PROGRAMS.items():
            count = fewer if args.quick else usual
            yield row(program, count, count * LAUNCHES[program], [each[program] for each in told])
        say("overhead: train")
        steps = 1 if args.quick else 20
        pairs, checksums = [], set()
        for number in range(1 if args.quick else rounds):
            took = {}
            for preload in (True, False) if number % 2 else (False, True):
                took[preload], checksum = train(card, preload, steps)
                checksums.add(checksum)
            pairs.append((took[False], took[True]))
        if len(checksums) != 1:
            raise Failed("the trainers did not all end with the same memory")
        yield row("train", steps, None, pairs)


if __name__ == "__main__":
    run("overhead", __doc__, measure, rounds=100)
