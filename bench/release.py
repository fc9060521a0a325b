#!/usr/bin/env python3
"""How long the card stands still when it goes from one program to another.

From the end of the last kernel of the one to the beginning of the first of the other, by the device's
own timer. `fits`: both would fit, but are made to take turns, so that nothing moves; beside it stands
`floor_p99_ms`, what a byte to another process and back and waking a thread cost in the same seconds.
Else they do not fit by a few MiB, one waits while the other works, and a pause is ten times as long
as a switch: then it gives way as soon as it pauses; `bus_ms` is what the missing bytes cost at the
limit of the bus.
"""

import statistics
import subprocess
import time

from _card import BUDGET, MIB, PATIENCE_S, WORKER, Failed, bus_limits, percentile, run, say, small_card, spread

TURN_MS = 20
ECHO_PAUSE_S = 0.005
WARM_UP = 8
DEFICIT = 6 * MIB
STAMPS = 4 * MIB  # what a worker holds besides, for the times
LEAD_S = 0.005  # the other asks for the card so long after this one has it


def intervals(worker):
    """(begin, end) of its kernels by the device's timer, in seconds."""
    times = [int(word) / 1e9 for word in worker.ask("stamps").split()]
    return list(zip(times[::2], times[1::2]))


def still_ms(workers):
    """Milliseconds between a kernel of one and the next, where that is the other's."""
    kernels = sorted((*times, which) for which, worker in enumerate(workers) for times in intervals(worker))
    return [
        (begin - end) * 1e3
        for (_, end, last), (begin, _, which) in zip(kernels, kernels[1:])
        if which != last
    ][WARM_UP:]


def result(fits, still, bus_ms, floor_ms):
    if not still:
        raise Failed("the card never changed hands")
    return {
        "fits": fits,
        "samples": len(still),
        "p50_ms": round(statistics.median(still), 4),
        "p99_ms": round(percentile(still, 0.99), 4),
        "bus_ms": None if bus_ms is None else round(bus_ms, 4),
        "floor_p99_ms": None if floor_ms is None else round(floor_ms, 4),
        "spread": spread(still),
    }


def fitting(samples):
    with small_card(TANDEM_TURN=f"{TURN_MS}ms", TANDEM_ALONE="1") as card:
        workers = [card.shared() for _ in range(2)]
        seconds = (samples + WARM_UP + 2) * (TURN_MS + 2) / 1e3
        for worker in workers:
            worker.tell("burst", int(seconds * 1e9))
        echo = subprocess.run(
            [WORKER, "--echo", str(int(seconds / ECHO_PAUSE_S)), str(int(ECHO_PAUSE_S * 1e9))],
            capture_output=True, check=True, timeout=PATIENCE_S,
        )  # fmt: skip
        for worker in workers:
            worker.answer("begun")
            worker.answer("ended")
        floor = [int(word) / 1e6 for word in echo.stdout.split()]
        return result(True, still_ms(workers), None, percentile(floor, 0.99))


def not_fitting(samples):
    with small_card() as card:
        limit = min(bus_limits(card, 20))
        workers = [card.shared() for _ in range(2)]
        for worker in workers:
            worker.ask("memory", (BUDGET + DEFICIT) // 2 - STAMPS)
        pause = 0.05  # until it is known what a switch costs
        for number in range(samples + WARM_UP + 1):
            worker = workers[number % 2]
            worker.tell("burst", int((pause + 4 * LEAD_S) * 1e9))
            worker.answer("begun")  # the other has given way, and pauses from now on
            if number > 0:
                workers[1 - number % 2].answer("ended")
            if number == WARM_UP:
                switches = [h["running_at_ns"] - h["revoked_at_ns"] for h in moves(card)]
                pause = max(pause, 10 * statistics.median(switches) / 1e9)
            time.sleep(pause + LEAD_S)
        worker.answer("ended")
        deficit = statistics.median(max(h["out_bytes"], h["in_bytes"]) for h in moves(card))
        return result(False, still_ms(workers), deficit / limit * 1e3, None)


def moves(card):
    return [h for h in card.ask("handovers")["handovers"] if h["in_bytes"] > 0]


def measure(args):
    samples = 20 if args.quick else max(1, args.rounds)
    say(f"release: {samples} turns of {TURN_MS} ms")
    yield fitting(samples)
    samples = 4 if args.quick else samples
    say(f"release: {samples} pauses")
    yield not_fitting(samples)


if __name__ == "__main__":
    run("release", __doc__, measure, rounds=250)
