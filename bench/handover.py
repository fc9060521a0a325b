#!/usr/bin/env python3
"""How close a hand-over comes to what the bus can do.

Two programs whose sets are the same share of the budget, who rewrite all of their memory in each
turn, which is made twice as long at least as that takes one alone; so each hand-over moves what is too much for the card, out for the one and in for the other, at
the same time. The limits are plain copies by two programs without Tandem, both directions busy, in
the same run. `efficiency`: the time that the slower direction would need at its limit, over the time
from the release of the card until the next program runs. Medians over hand-overs. `page_faults`: of
both programs, a hand-over; memory that is fresh each time shows here on every machine.

`set_fraction` is what whole chunks make of 60, 80 and 95 %. Scaled like a card of 141 GB on a bus of 55 GB/s: the whole budget would need 2.56 s, times the scale,
one way.
"""

import statistics
import time

from _card import (
    BUDGET, CHUNK, FULL_SCALE_S, PATIENCE_S, Failed, PageFaults, bus_limits, held_share, on_real_card,
    pass_seconds, run, say, small_card, spread,
)  # fmt: skip

FRACTIONS = (0.6, 0.8, 0.95)
# On a card: host memory has to hold what two sets have beyond it.
REAL_FRACTIONS = (0.6, 0.8)
REAL_COPIES = 1000


def handovers(card, held, wanted):
    """`wanted` hand-overs that moved memory both ways, without the first two; page faults for each."""
    workers = [card.shared() for _ in range(2)]
    for worker in workers:
        worker.ask("memory", held)
    for worker in workers:
        worker.tell("work", PATIENCE_S)
    moves, faults = {}, None
    deadline = time.monotonic() + PATIENCE_S
    while len(moves) < wanted + 2 and time.monotonic() < deadline:
        time.sleep(0.1)
        for worker in workers:
            if worker.process.poll() is not None:
                raise Failed("bench_worker ended")
        for told in card.ask("handovers")["handovers"]:
            if told["in_bytes"] > 0 and told["out_bytes"] > 0:
                moves[told["epoch"]] = told
        if faults is None and len(moves) >= 2:
            faults = PageFaults(card, workers)
    each = faults and faults.each()
    for worker in workers:
        worker.close()
    return [move for _, move in sorted(moves.items())][2 : wanted + 2], each


def row(held, budget, moves, limit_out, limit_in):
    if not moves:
        raise Failed("there were no hand-overs")
    middle = statistics.median_low(range(len(moves)))
    seconds = [h["took_s"] - h["release_s"] for h in moves]
    ideal = [max(h["out_bytes"] / limit_out, h["in_bytes"] / limit_in) for h in moves]
    efficiency = [best / took for best, took in zip(ideal, seconds)]

    def typical(values):
        return sorted(values)[middle]

    return {
        "set_fraction": round(held / budget, 4),
        "deficit_bytes": typical(h["lacked_bytes"] - h["free_bytes"] for h in moves),
        "out_bytes": typical(h["out_bytes"] for h in moves),
        "in_bytes": typical(h["in_bytes"] for h in moves),
        "out_gbps": round(typical(h["out_bytes"] / s / 1e9 for h, s in zip(moves, seconds)), 4),
        "in_gbps": round(typical(h["in_bytes"] / s / 1e9 for h, s in zip(moves, seconds)), 4),
        "limit_out_gbps": round(limit_out / 1e9, 4),
        "limit_in_gbps": round(limit_in / 1e9, 4),
        "efficiency": round(typical(efficiency), 4),
        "rounds": len(moves),
        "spread": spread(efficiency),
        "handover_ms": round(typical(seconds) * 1e3, 3),
    }


def on_soft_card(args):
    one_way = FULL_SCALE_S / args.scale
    bus = f"{BUDGET / one_way / 1e6:.0f}MB/s"
    wanted = 1 if args.quick else max(1, args.rounds)
    for fraction in FRACTIONS[-1:] if args.quick else FRACTIONS:
        held = held_share(fraction)
        with small_card(bus) as card:
            pass_ms = pass_seconds(card, held, 1 if args.quick else 5) * 1e3
        turn_ms = max(100 if args.quick else 4000 * one_way, 2 * pass_ms)
        with small_card(bus, TANDEM_TURN=f"{turn_ms:.0f}ms") as card:
            say(f"handover: the limits of the bus, {bus}")
            limits = bus_limits(card, 2 if args.quick else 50)
            say(f"handover: {held / BUDGET:.2f} of the budget each, {wanted} hand-overs")
            moves, faults = handovers(card, held, wanted)
            yield {
                **row(held, BUDGET, moves, *limits),
                "page_faults": faults,
                "turn_ms": round(turn_ms, 1),
                "pass_ms": round(pass_ms, 1),
                "scale": f"1:{args.scale}",
            }


def on_real_gpu(args):
    """Sets of the whole card's budget, in turns of half a second."""
    for fraction in (args.fraction,) if args.fraction else REAL_FRACTIONS:
        with small_card(TANDEM_TURN="500ms") as card:
            gpu = card.ask("status")["gpus"][0]
            held = int(gpu["budget_bytes"] * fraction) // CHUNK * CHUNK
            limits = bus_limits(card, REAL_COPIES)
            say(f"handover: {fraction} of {gpu['budget_bytes'] / 1e9:.1f} GB each, {args.rounds} hand-overs")
            moves, faults = handovers(card, held, args.rounds)
            yield {**row(held, gpu["budget_bytes"], moves, *limits), "page_faults": faults,
                   "turn_ms": 500.0, "card": gpu["name"]}  # fmt: skip


def measure(args):
    yield from (on_real_gpu if on_real_card() else on_soft_card)(args)


if __name__ == "__main__":
    scale = {"type": int, "default": 20, "help": "times faster than that card"}
    fraction = {"type": float, "help": "with TANDEM_GPU=cuda: this share of the budget each, not 60 and 80 %%"}
    run("handover", __doc__, measure, rounds=40, options=((("--scale",), scale), (("--fraction",), fraction)))
