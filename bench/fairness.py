#!/usr/bin/env python3
"""How much of a card's time each program gets, against what was asked for: real programs that never
pause, under the policy `fair`.

`got` is the time of each program's kernels, by the device's own timer, over the time in which all
wanted the card; what is lacking to 1 went into hand-overs and launches. `share` is the same as a part of
what all of them got. `worst` is the largest difference from what was asked in any ten seconds of that,
as a part of it. `jain` is Jain's index of got over asked: 1 where all got what they asked for in the
same measure.
"""

import subprocess

from _card import PATIENCE_S, TANDEM, Failed, run, say, small_card, spread

SECONDS = 24  # of work in each round; the device keeps the latest stamps of it
WINDOW_S, STEP_S = 10, 0.5

CASES = (  # of each program: its share as people write it, and what part of the time that comes to
    ("equal", ("1", "1", "1", "1"), (1 / 4, 1 / 4, 1 / 4, 1 / 4)),
    ("1:2:4", ("1", "2", "4"), (1 / 7, 2 / 7, 4 / 7)),
    ("30%", ("30%", "1", "1"), (0.3, 0.35, 0.35)),
    ("30% and 50%", ("30%", "50%", "1"), (0.3, 0.5, 0.2)),
)


def set_share(card, worker, share):
    session = next(s["id"] for s in card.ask("ps")["sessions"] if s["pid"] == worker.process.pid)
    subprocess.run([TANDEM, "share", str(session), share], env=card.env, check=True,
                   stdout=subprocess.DEVNULL, timeout=PATIENCE_S)  # fmt: skip


def kernels(worker):
    """(begin, end) of its latest kernels by the device's timer, in seconds."""
    times = [int(word) / 1e9 for word in worker.ask("stamps").split()]
    return list(zip(times[::2], times[1::2]))


def busy(spans, begin, end):
    """Seconds between `begin` and `end` in which one of the kernels ran."""
    return sum(max(0.0, min(e, end) - max(b, begin)) for b, e in spans)


def contend(workers, seconds):
    """The kernels of each while all of them wanted the card, and from when to when that was."""
    for worker in workers:
        worker.tell("burst", int(seconds * 1e9))
    for worker in workers:
        worker.answer("begun")
    for worker in workers:
        worker.answer("ended")
    spans = [kernels(worker) for worker in workers]
    begin = max(min(b for b, _ in each) for each in spans)
    # The first one to end leaves the others more.
    end = min(max(e for _, e in each) for each in spans)
    if end - begin < WINDOW_S:
        raise Failed(f"all of them had the card for {end - begin:.1f} s only")
    return spans, begin, end


def shares_of(spans, begin, end):
    times = [busy(each, begin, end) for each in spans]
    return [seconds / sum(times) for seconds in times]


def worst_window(spans, asked, begin, end):
    worst, at = 0.0, begin
    while at + WINDOW_S <= end:
        shares = shares_of(spans, at, at + WINDOW_S)
        worst = max(worst, *(abs(share - part) for share, part in zip(shares, asked)))
        at += STEP_S
    return worst


def jain(got, asked):
    """Jain, Chiu and Hawe, "A Quantitative Measure of Fairness", DEC TR-301 (1984), section 2.2."""
    ratios = [part / wanted for part, wanted in zip(got, asked)]
    return sum(ratios) ** 2 / (len(ratios) * sum(ratio * ratio for ratio in ratios))


def measured(case, words, asked, rounds, seconds):
    with small_card(TANDEM_POLICY="fair") as card:
        workers = [card.shared() for _ in words]
        for worker, share in zip(workers, words):
            worker.ask("launches", 1)
            set_share(card, worker, share)
        gots, shares, worst = [], [], 0.0
        for number in range(rounds):
            say(f"fairness: {case}, round {number + 1} of {rounds}")
            spans, begin, end = contend(workers, seconds)
            gots.append([busy(each, begin, end) / (end - begin) for each in spans])
            shares.append(shares_of(spans, begin, end))
            worst = max(worst, worst_window(spans, asked, begin, end))
        mean = [[sum(each) / rounds for each in zip(*rows)] for rows in (gots, shares)]
        return {
            "case": case,
            "asked": [round(part, 4) for part in asked],
            "got": [round(part, 4) for part in mean[0]],
            "share": [round(part, 4) for part in mean[1]],
            "worst": round(worst, 4),
            "jain": round(jain(mean[1], asked), 5),
            "rounds": rounds,
            "spread": spread([jain(each, asked) for each in shares]),
        }


def measure(args):
    cases = CASES[:1] if args.quick else CASES
    for case, words, asked in cases:
        yield measured(case, words, asked, 1 if args.quick else max(1, args.rounds),
                       WINDOW_S + 4 if args.quick else SECONDS)  # fmt: skip


if __name__ == "__main__":
    run("fairness", __doc__, measure, rounds=3)
