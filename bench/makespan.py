#!/usr/bin/env python3
"""Two jobs of about 95 % of the budget each (`set_fraction`), in turns on one card, against one after the
other.

Each has phases on the card, which rewrite all of its memory, and phases without it in between. A
change of holder moves what both have too much, both ways at once. Paired rounds, medians. `bound`: what the same phases, turns and
switches would give if every decision were made at once and the bus never slower than it is rated;
`ideal`: if besides each phase ran to its end. `duty` is the share of phases on the card, `phase_s`
how long one of these takes at full scale. `serial_ratio`: the time together over the time one after the
other. `bus`: of the small card; beside the one to scale there are a slow, a middling and a fast one.

Scaled like a card of 141 GB on a bus of 55 GB/s: all times are divided by the scale. Device times are
of the model clock, which does not depend on the host.
"""

import statistics
import time

from _bound import speedup
from _card import (
    BUDGET, FULL_SCALE_S, PATIENCE_S, held_share, pass_seconds, run, say, small_card, software_only, spread,
)  # fmt: skip

HELD = held_share(0.95)
PHASES = 20
# Of src/core/turns.h, for turns without a fixed length.
FLOOR_S, COST_MULTIPLE = 0.05, 20
# The share of phases on the card; seconds at full scale of a phase there and of a turn.
RUNS = ((0.5, 30, None), (0.9, 30, None), (0.5, 30, 5), (0.9, 30, 5))
LONG_RUNS = ((0.5, 100, None), (0.9, 100, None))
QUICK_RUNS = ((0.5, 30, None), (0.5, 30, 5))
# In bytes per second, with half of the time on the card in phases of 30 s.
OTHER_BUSES = (100e6, 1e9, 8e9)


def one_by_one(bus, words, patience_s):
    """Seconds of two jobs, the second after the first."""
    seconds = 0.0
    with small_card(bus, TANDEM_SOFT_CLOCK="model") as card:
        for _ in range(2):
            worker = card.shared()
            worker.ask("memory", HELD)
            worker.tell(*words)
            seconds += int(worker.answer(patience_s=patience_s)) / 1e9
            worker.close()
    return seconds


def together(bus, words, patience_s, turn_s):
    """Seconds until both are done, and how often the card changed hands."""
    turn = {} if turn_s is None else {"TANDEM_TURN": f"{turn_s * 1e3:.3f}ms"}
    with small_card(bus, TANDEM_SOFT_CLOCK="model", **turn) as card:
        workers = [card.shared() for _ in range(2)]
        for worker in workers:
            worker.ask("memory", HELD)
        begin = time.monotonic()
        for worker in workers:
            worker.tell(*words)
        for worker in workers:
            worker.answer(patience_s=patience_s)
        return time.monotonic() - begin, card.ask("status")["gpus"][0]["handovers"]


def paired(bus, phases, passes, gpu, pause, turn_s, rounds):
    """Of each round the seconds of both jobs one after the other and together, and the hand-overs."""
    words = ("job", phases, passes, int(pause * 1e9))
    patience_s = PATIENCE_S + 10 * phases * (gpu + pause)
    told = []
    for number in range(rounds):
        say(f"makespan: round {number + 1} of {rounds}, one after the other")
        serial = one_by_one(bus, words, patience_s)
        say(f"makespan: round {number + 1} of {rounds}, together")
        told.append((serial, *together(bus, words, patience_s, turn_s)))
    return told


def row(told):
    speedups = [serial / shared for serial, shared, _ in told]
    serial_s, shared_s, handovers = (statistics.median(values) for values in zip(*told))
    return {
        "jobs": 2,
        "set_fraction": round(HELD / BUDGET, 4),
        "serial_s": round(serial_s, 3),
        "shared_s": round(shared_s, 3),
        "speedup": round(statistics.median(speedups), 4),
        "serial_ratio": round(1 / statistics.median(speedups), 4),
        "handovers": handovers,
        "rounds": len(told),
        "spread": spread(speedups),
    }


def rated(bytes_per_second):
    return f"{bytes_per_second / 1e6:.0f}MB/s"


def measure(args):
    software_only("the jobs, their phases and the bus are made for the software card")
    to_scale = BUDGET * args.scale / FULL_SCALE_S
    phases, rounds = (2, 1) if args.quick else (PHASES, max(1, args.rounds))
    with small_card(rated(to_scale), TANDEM_SOFT_CLOCK="model") as card:
        a_pass = pass_seconds(card, HELD, 1 if args.quick else 5)
    runs = QUICK_RUNS if args.quick else RUNS + (LONG_RUNS if args.long or args.phase else ())
    runs = [(*each, to_scale) for each in runs]
    runs += [(0.5, 30, None, bus) for bus in OTHER_BUSES[: 1 if args.quick else None]]
    for duty, phase_s, turn_s, bytes_per_second in runs:
        if args.duty not in (None, duty) or args.phase not in (None, phase_s):
            continue
        bus = rated(bytes_per_second)
        switch = (2 * HELD - BUDGET) / bytes_per_second
        passes = 1 if args.quick else max(1, round(phase_s / args.scale / a_pass))
        gpu = passes * a_pass
        pause = gpu * (1 - duty) / duty
        scaled_turn = None if turn_s is None else turn_s / args.scale
        quantum = max(FLOOR_S, COST_MULTIPLE * switch) if turn_s is None else scaled_turn
        say(f"makespan: duty {duty}, phases of {phase_s} s, turns of {turn_s or 'their own length'}, bus {bus}")
        yield {
            "duty": duty,
            "phase_s": round(gpu * args.scale, 2),
            "turn_s": turn_s,
            "bus": bus,
            **row(paired(bus, phases, passes, gpu, pause, scaled_turn, rounds)),
            "bound": round(speedup(phases, gpu, pause, switch, quantum), 4),
            "ideal": round(speedup(phases, gpu, pause, switch), 4),
            "scale": f"1:{args.scale}",
        }


if __name__ == "__main__":
    scale = {"type": int, "default": 50, "help": "times faster than that card"}
    duty = {"type": float, "help": "only with this share of phases on the card"}
    phase = {"type": int, "help": "only with phases of this many seconds"}
    longer = {"action": "store_true", "help": "phases of 100 s as well"}
    options = ((("--scale",), scale), (("--long",), longer), (("--duty",), duty), (("--phase",), phase))
    run("makespan", __doc__, measure, rounds=3, options=options)
