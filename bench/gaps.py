#!/usr/bin/env python3
"""Short pauses must not cost the card: two trainers that do not fit together, each with steps of
about 100 ms and pauses of 5 ms, on a bus so slow that a switch takes far longer than a pause.

A daemon that took the card in every pause would switch ten times a second. `slowdown` is the time
both take together over twice the time that one takes alone, in paired rounds; below 1 each used the
other's pauses.
"""

import json
import statistics
import subprocess
import time

from _card import PATIENCE_S, TANDEM, TRAIN, Card, Failed, run, say, software_only, spread

GAP_MS, STEP_MS = 5, 100
CARD = {
    # After the reserve for contexts 94 MiB can be handed out, so a switch moves most of a set.
    "TANDEM_SOFT_VRAM": "128M",
    "TANDEM_SOFT_CONTEXT": "8M",
    "TANDEM_SOFT_PCIE": "400MB/s",
}
MEMORY = "64M"


def train(card, count, steps, passes):
    """Runs `count` trainers at once: what each reports, and the seconds until the last has ended."""
    argv = [TANDEM, "run", "--", TRAIN, "--json", "--memory", MEMORY, "--steps", str(steps)]
    argv += ["--passes", str(passes), "--pause-ms", str(GAP_MS)]
    begin = time.monotonic()
    jobs = [subprocess.Popen(argv, env=card.env, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        outputs = [job.communicate(timeout=PATIENCE_S)[0] for job in jobs]
    finally:
        for job in jobs:
            job.kill()
    seconds = time.monotonic() - begin
    if any(job.returncode != 0 for job in jobs):
        raise Failed("a trainer failed")
    return [json.loads(output) for output in outputs], seconds


def measured(card, rounds, steps):
    (first,), _ = train(card, 1, 10, 1)
    passes = max(1, round(STEP_MS / first["step_ms"]))
    step_ms, slowdowns, handovers, shared_seconds, checksums = [], [], 0, 0.0, set()
    for number in range(rounds):
        say(f"gaps: round {number + 1} of {rounds}")
        (alone,), solo = train(card, 1, steps, passes)
        before = card.ask("status")["gpus"][0]["handovers"]
        both, shared = train(card, 2, steps, passes)
        handovers += card.ask("status")["gpus"][0]["handovers"] - before
        shared_seconds += shared
        slowdowns.append(shared / (2 * solo))
        step_ms.append(alone["step_ms"])
        checksums.update(report["checksum"] for report in (alone, *both))
    if len(checksums) != 1:
        raise Failed("the trainers did not all end with the same memory")
    switches = [
        h["took_s"] * 1e3
        for h in card.ask("handovers")["handovers"]
        if h["in_bytes"] > 0 and h["took_s"] > 0
    ]
    slowdown = statistics.median(slowdowns)
    return {
        "step_ms": round(statistics.median(step_ms), 3),
        "gap_ms": GAP_MS,
        "switch_ms": round(statistics.median(switches), 3) if switches else None,
        "slowdown": round(slowdown, 4),
        "handovers_per_minute": round(handovers * 60 / shared_seconds, 2),
        "rounds": rounds,
        "spread": spread(slowdowns),
        "passes": passes,
        "steps": steps,
    }


def measure(args):
    software_only("the bus has to be slow")
    with Card(**CARD) as card:
        if args.quick:
            yield measured(card, 1, 2)
        else:
            yield measured(card, max(1, args.rounds), max(1, args.steps))


if __name__ == "__main__":
    steps = {"type": int, "default": 60, "help": "of each trainer, in each round"}
    run("gaps", __doc__, measure, rounds=3, options=((("--steps",), steps),))
