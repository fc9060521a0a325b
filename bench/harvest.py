#!/usr/bin/env python3
"""What opportunistic work gets of the gaps that production leaves, and what production loses by it. Real
programs on the software GPU, by its model clock: production has 8 ms of kernels, then 12 ms of work on
the host, and so on; the kernels of the other program take 0.3 ms, and there are always more of them. Both
fit on the card.

`rules` is `priority` (the policy of that name) or `none`: programs that fit together have the card at once,
and the device's own turns of 2 ms divide the time. `device_priority`: production's kernels come before others
on the device, as on no real one that is shared by time. `production_loss` is of its throughput, and
`production_p99_ratio` of the time of a step, `production_work_p99_ratio` of the 8 ms of it: all against
production alone, before and after. `gap_share` is the opportunistic kernels' time over the time that
production alone would have left. Times are the device's.
"""

import bisect
import statistics

from _card import Failed, percentile, run, say, small_card, software_only, spread

KERNELS, ROUNDS = 8, 6667  # of a millisecond each, by the model clock
PAUSE_NS = 12_000_000
STEPS, SETTLING = 500, 750  # of 20 ms
LONGEST_STEP_S = 0.04
VARIANTS = (("priority", True), ("priority", False), ("none", True), ("none", False))


def serve(worker, steps):
    """(begin, end) of production's steps, in seconds of the device's."""
    worker.ask("serve", steps, KERNELS, ROUNDS, PAUSE_NS)
    times = [int(word) / 1e9 for word in worker.ask("stamps").split()]
    if len(times) != 2 * KERNELS * steps:
        raise Failed(f"{len(times)} times were noted of {steps} steps")
    return list(zip(times[:: 2 * KERNELS], times[2 * KERNELS - 1 :: 2 * KERNELS]))


def step_times(steps):
    """From the begin of each to that of the next."""
    begins = [begin for begin, _ in steps]
    return [after - before for before, after in zip(begins, begins[1:])]


def work_times(steps):
    return [end - begin for begin, end in steps]


def busy(stamps, begin, end):
    """Seconds of kernels between `begin` and `end`."""
    first = bisect.bisect([e for _, e in stamps], begin)
    return sum(max(0.0, min(e, end) - max(b, begin)) for b, e in stamps[first:])


def round_of(card, device_priority, steps, settling):
    """Production's steps alone, and beside the other, and the other's kernels."""
    variables = {} if device_priority else {"TANDEM_SOFT_PRIORITY": "0"}
    production = card.run("--class", "production", **variables)
    serve(production, 20)  # it warms up
    alone = [serve(production, steps // 2)]
    other = card.run("--class", "opportunistic", **variables)
    # Longer than production takes, be it half as fast.
    other.tell("burst", int((settling + steps) * LONGEST_STEP_S * 1e9))
    other.answer("begun")
    serve(production, settling)
    beside = serve(production, steps)
    other.answer("ended")
    times = [int(word) / 1e9 for word in other.ask("stamps").split()]
    other.close()
    alone.append(serve(production, steps // 2))
    production.close()
    kernels = sorted(zip(times[::2], times[1::2]))
    if kernels[-1][1] < beside[-1][1]:
        raise Failed("the opportunistic program was done before production")
    return alone, beside, kernels


def judged(alone, beside, kernels):
    """production_loss, production_p99_ratio, production_work_p99_ratio, gap_share."""

    def together(times_of):
        return [time for part in alone for time in times_of(part)]

    steps, works = together(step_times), together(work_times)
    step = statistics.mean(steps)
    begin, end = beside[0][0], beside[-1][1]
    left = (end - begin) * (1 - statistics.mean(works) / step)
    return (
        1 - step / statistics.mean(step_times(beside)),
        percentile(step_times(beside), 0.99) / percentile(steps, 0.99),
        percentile(work_times(beside), 0.99) / percentile(works, 0.99),
        busy(kernels, begin, end) / left,
    )


def measured(rules, device_priority, rounds, steps, settling):
    policy = "priority" if rules == "priority" else "interactive"
    results = []
    for number in range(rounds):
        say(f"harvest: rules {rules}, device priority {device_priority}, round {number + 1} of {rounds}")
        with small_card(TANDEM_POLICY=policy, TANDEM_SOFT_CLOCK="model") as card:
            results.append(judged(*round_of(card, device_priority, steps, settling)))
    columns = list(zip(*results))
    names = ("production_loss", "production_p99_ratio", "production_work_p99_ratio", "gap_share")
    return {
        "rules": rules,
        "device_priority": device_priority,
        **{name: round(statistics.median(column), 4) for name, column in zip(names, columns)},
        "rounds": rounds,
        "spread": spread([1 - loss for loss in columns[0]]),
    }


def measure(args):
    software_only("production's kernels have to take 8 ms")
    steps, settling = (30, 10) if args.quick else (STEPS, SETTLING)
    for rules, device_priority in VARIANTS[:1] if args.quick else VARIANTS:
        yield measured(rules, device_priority, 1 if args.quick else max(1, args.rounds), steps, settling)


if __name__ == "__main__":
    run("harvest", __doc__, measure, rounds=3)
