#!/usr/bin/env python3
"""What Tandem costs a program that has the card to itself and fits.

Each program twice, without Tandem and with it, in turns; `slowdown` is the median of the ratios of
the pairs. `launches`: one empty kernel after the other; `rewrite`: kernels that write all of 16 MiB;
`copies`: 1 MiB to the card and back; `train`: the example, from its first step to its last.
"""

import json
import statistics
import subprocess

from _card import MIB, PATIENCE_S, SHIM, TRAIN, Failed, run, say, small_card, spread

HELD = 16 * MIB
PROGRAMS = {  # words for the worker, how often in all, how often in a quick run
    "launches": (("launches",), 20_000, 500),
    "rewrite": (("rewrite",), 10, 1),
    "copies": (("copies", "up", MIB), 200, 10),
}
LAUNCHES = {"launches": 1, "rewrite": HELD // MIB, "copies": 1}  # in each


def train(card, preload, steps):
    """Seconds of so many steps, and what the memory was at the end."""
    env = {**card.env, **({"LD_PRELOAD": SHIM} if preload else {})}
    argv = [TRAIN, "--json", "--memory", str(HELD), "--steps", str(steps)]
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, timeout=PATIENCE_S)
    if done.returncode != 0:
        raise Failed("train failed")
    report = json.loads(done.stdout)
    return report["seconds"], report["checksum"]


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
        "count": count,
    }


def measure(args):
    rounds = 2 if args.quick else max(1, args.rounds)
    with small_card() as card:
        bare, shared = card.bare(), card.shared()
        for worker in (bare, shared):
            worker.ask("memory", HELD)
        for program, (words, usual, quick) in PROGRAMS.items():
            count = quick if args.quick else usual
            say(f"overhead: {program}")
            pairs = []
            for number in range(rounds + 1):  # the first warms up
                order = (bare, shared) if number % 2 else (shared, bare)
                took = {worker: worker.seconds(*words, count) for worker in order}
                pairs.append((took[bare], took[shared]))
            yield row(program, count, count * LAUNCHES[program], pairs[1:])
        bare.close()
        shared.close()
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
    run("overhead", __doc__, measure, rounds=15)
