#!/usr/bin/env python3
"""How long the card stands still when it goes from one program to another.

From the end of the last kernel of the one to the beginning of the first of the other, by the device's
own timer. `fits`: both would fit, but are made to take turns, so that nothing moves; beside it stands
`floor_p99_ms`, what a byte to another process and back and waking a thread cost in the same seconds.
Else they do not fit by a few MiB. One works while the other pauses, and asks for the card shortly
before the first is done, which then gives way as soon as it pauses; `bus_ms` is what the missing bytes
cost at the limit of the bus. Pauses are ten times as long as a switch (`switch_ms`), but no longer
than a second: `pause_ms`. `page_faults`: of both programs, a hand-over; memory that is fresh each time
shows here on every machine.

Percentiles over all samples; `spread` is that of the medians of the rounds.
"""

import statistics
import subprocess
import time

from _card import (
    BUDGET, MIB, PATIENCE_S, WORKER, Failed, PageFaults, bus_limits, percentile, run, say, small_card, software_only, spread,
)  # fmt: skip

SAMPLES = 50  # in each round
TURN_MS = 20
ECHO_PAUSE_S = 0.005
WARM_UP = 8
DEFICIT = 6 * MIB
STAMPS = 4 * MIB  # what a worker holds besides, for the times
LEAD_S = 0.005
WAITING = 3  # times LEAD_S, how long the other has asked when this one pauses
UNINTERRUPTED_S = 60  # a turn, so that it ends with a pause and never in the middle of the work
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.025, 1.0
BUS = "2GB/s"  # each way, that of sets that do not fit: what two processors can copy beside the rest


def intervals(worker):
    """(begin, end) of its latest kernels by the device's timer, in seconds."""
    times = [int(word) / 1e9 for word in worker.ask("stamps").split()]
    return list(zip(times[::2], times[1::2]))


def still_ms(workers):
    """Milliseconds between a kernel of one and the next, where that is the other's."""
    kernels = sorted((*times, which) for which, worker in enumerate(workers) for times in intervals(worker))
    return [
        (begin - end) * 1e3
        for (_, end, last), (begin, _, which) in zip(kernels, kernels[1:])
        if which != last
    ]


def enough(samples, some):
    """Collects what `some(count)` gives, until there are `samples` after those that warm up."""
    still = []
    deadline = time.monotonic() + PATIENCE_S
    while len(still) < samples + WARM_UP:
        if time.monotonic() > deadline:
            raise Failed(f"the card changed hands {len(still)} times in {PATIENCE_S} s")
        still += some(samples + WARM_UP - len(still))
    if any(gap < 0 for gap in still[WARM_UP:]):
        raise Failed("both programs had the card at once")
    return still[WARM_UP:]


def result(fits, rounds, **others):
    still = [gap for samples in rounds for gap in samples]
    return {
        "fits": fits,
        "samples": len(still),
        "p50_ms": round(statistics.median(still), 4),
        "p99_ms": round(percentile(still, 0.99), 4),
        **{name: value if value is None else round(value, 4) for name, value in others.items()},
        "rounds": len(rounds),
        "spread": spread([statistics.median(samples) for samples in rounds]),
    }


def turns(workers, samples, floor_ms):
    """What `samples` forced turns give; notes in `floor_ms` what was measured beside them."""
    seconds = (samples + 2) * (TURN_MS + 2) / 1e3
    for worker in workers:
        worker.tell("burst", int(seconds * 1e9))
    echo = subprocess.run(
        [WORKER, "--echo", str(int(seconds / ECHO_PAUSE_S)), str(int(ECHO_PAUSE_S * 1e9))],
        capture_output=True, check=True, timeout=PATIENCE_S,
    )  # fmt: skip
    for worker in workers:
        worker.answer("begun")
        worker.answer("ended")
    floor_ms += [int(word) / 1e6 for word in echo.stdout.split()]
    return still_ms(workers)


def fitting(samples, rounds):
    with small_card(TANDEM_TURN=f"{TURN_MS}ms", TANDEM_ALONE="1") as card:
        workers = [card.shared() for _ in range(2)]
        floor_ms = []
        still = [enough(samples, lambda missing: turns(workers, missing, floor_ms)) for _ in range(rounds)]
        return result(True, still, bus_ms=None, floor_p99_ms=percentile(floor_ms, 0.99))


def pauses(workers, samples, pause_s):
    """What it gives when they pause in turns, each while the other works."""
    for number in range(samples + 1):
        worker = workers[number % 2]
        worker.tell("burst", int((pause_s + WAITING * LEAD_S) * 1e9))
        worker.answer("begun")  # the other has given way, and pauses from now on
        if number > 0:
            workers[1 - number % 2].answer("ended")
        time.sleep(pause_s)
    worker.answer("ended")
    return still_ms(workers)


def not_fitting(samples, rounds, longest_pause_s):
    with small_card(bus=BUS, TANDEM_TURN=f"{UNINTERRUPTED_S}s") as card:
        limit = min(bus_limits(card, 20))
        workers = [card.shared() for _ in range(2)]
        for worker in workers:
            worker.ask("memory", (BUDGET + DEFICIT) // 2 - STAMPS)
        pauses(workers, WARM_UP, FIRST_PAUSE_S)
        switch_s = statistics.median(h["took_s"] - h["release_s"] for h in moves(card))
        pause_s = min(max(FIRST_PAUSE_S, 10 * switch_s), longest_pause_s)
        say(f"release: pauses of {pause_s * 1e3:.0f} ms")
        faults = PageFaults(card, workers)
        still = [enough(samples, lambda missing: pauses(workers, missing, pause_s)) for _ in range(rounds)]
        moved = moves(card)
        deficit = statistics.median(max(h["out_bytes"], h["in_bytes"]) for h in moved)
        switch_s = statistics.median(h["took_s"] - h["release_s"] for h in moved)
        return result(False, still, bus_ms=deficit / limit * 1e3, floor_p99_ms=None,
                      switch_ms=switch_s * 1e3, pause_ms=pause_s * 1e3, page_faults=faults.each())  # fmt: skip


def moves(card):
    moved = [h for h in card.ask("handovers")["handovers"] if h["in_bytes"] > 0]
    if not moved:
        raise Failed("no hand-over moved anything")
    return moved


def measure(args):
    rounds = 1 if args.quick else max(1, args.rounds)
    samples = 20 if args.quick else SAMPLES
    say(f"release: {rounds} rounds of {samples} turns of {TURN_MS} ms")
    yield fitting(samples, rounds)
    software_only("how much does not fit is known for the software card alone")
    samples = 4 if args.quick else samples
    say(f"release: {rounds} rounds of {samples} pauses")
    yield not_fitting(samples, rounds, 0.05 if args.quick else LONGEST_PAUSE_S)


if __name__ == "__main__":
    run("release", __doc__, measure, rounds=5)
