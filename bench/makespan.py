#!/usr/bin/env python3
"""Two jobs of 95 % of the budget each, in turns on one card, against one after the other.

Each has phases on the card, which rewrite all of its memory, and phases without it in between. A
change of holder moves 90 % of the budget, both ways at once. `bound`: what the same phases, turns and
switches would give if every decision were made at once and the bus never slower than it is rated;
`ideal`: if besides each phase ran to its end. `duty` is the share of phases on the card, `phase_s`
how long one of these takes at full scale.

Scaled like a card of 141 GB on a bus of 55 GB/s: all times are divided by the scale. Device times are
of the model clock, which does not depend on the host.
"""

import statistics
import time

from _bound import speedup
from _card import BUDGET, FULL_SCALE_S, MIB, run, say, small_card

FRACTION = 0.95
PHASES = 20
# Of src/core/turns.h, for turns without a fixed length.
FLOOR_S, COST_MULTIPLE = 0.05, 20
RUNS = ((0.5, 30, None), (0.9, 30, None), (0.5, 30, 5), (0.9, 30, 5))
LONG_RUNS = ((0.5, 100, None), (0.9, 100, None))


def job_words(passes, phases, pause_s):
    return ("job", phases, passes, int(pause_s * 1e9))


def alone(bus, words, jobs):
    """Seconds of each job with the card to itself."""
    took = []
    for _ in range(jobs):
        with small_card(bus, TANDEM_SOFT_CLOCK="model") as card:
            worker = card.shared()
            worker.ask("memory", int(BUDGET * FRACTION) // MIB * MIB)
            took.append(worker.seconds(*words))
    return took


def together(bus, words, turn_s):
    """Seconds until both are done, and how often the card changed hands."""
    turn = {} if turn_s is None else {"TANDEM_TURN": f"{turn_s * 1e3:.3f}ms"}
    with small_card(bus, TANDEM_SOFT_CLOCK="model", **turn) as card:
        workers = [card.shared() for _ in range(2)]
        for worker in workers:
            worker.ask("memory", int(BUDGET * FRACTION) // MIB * MIB)
        begin = time.monotonic()
        for worker in workers:
            worker.tell(*words)
        for worker in workers:
            worker.answer()
        return time.monotonic() - begin, card.ask("status")["gpus"][0]["handovers"]


def pass_seconds(bus, count):
    with small_card(bus, TANDEM_SOFT_CLOCK="model") as card:
        worker = card.shared()
        worker.ask("memory", int(BUDGET * FRACTION) // MIB * MIB)
        worker.ask("rewrite", 1)
        return statistics.median(worker.seconds("rewrite", 1) for _ in range(count))


def measure(args):
    one_way = FULL_SCALE_S / args.scale
    bus = f"{BUDGET / one_way / 1e6:.0f}MB/s"
    switch = (2 * FRACTION - 1) * one_way
    phases = 2 if args.quick else PHASES
    a_pass = pass_seconds(bus, 1 if args.quick else 5)
    serial = {}
    runs = RUNS[:1] if args.quick else RUNS + (LONG_RUNS if args.long else ())
    for duty, phase_s, turn_s in runs:
        passes = max(1, round(phase_s / args.scale / a_pass)) if not args.quick else 1
        gpu = passes * a_pass
        pause = gpu * (1 - duty) / duty
        words = job_words(passes, phases, pause)
        if (duty, phase_s) not in serial:
            say(f"makespan: duty {duty}, phases of {phase_s} s, one after the other")
            serial[duty, phase_s] = sum(alone(bus, words, 2))
        say(f"makespan: duty {duty}, phases of {phase_s} s, turns of {turn_s or 'their own length'}")
        scaled_turn = None if turn_s is None else turn_s / args.scale
        shared, handovers = together(bus, words, scaled_turn)
        one_by_one = serial[duty, phase_s]
        quantum = max(FLOOR_S, COST_MULTIPLE * switch) if turn_s is None else scaled_turn
        yield {
            "duty": duty,
            "phase_s": round(gpu * args.scale, 2),
            "turn_s": turn_s,
            "jobs": 2,
            "serial_s": round(one_by_one, 3),
            "shared_s": round(shared, 3),
            "speedup": round(one_by_one / shared, 4),
            "bound": round(speedup(phases, gpu, pause, switch, quantum), 4),
            "ideal": round(speedup(phases, gpu, pause, switch), 4),
            "handovers": handovers,
            "scale": f"1:{args.scale}",
        }


if __name__ == "__main__":
    scale = {"type": int, "default": 50, "help": "so many times faster than that card"}
    longer = {"action": "store_true", "help": "phases of 100 s as well"}
    run("makespan", __doc__, measure, options=((("--scale",), scale), (("--long",), longer)))
