"""When two jobs that take turns on a card would be done, were decisions free: the bound of the
benchmark `makespan`.

Each job does `phases` times: `gpu` seconds of work on the card, then `pause` seconds without it. A
change of holder takes `switch` seconds. The rules are those of src/core/turns.h and
src/core/planner.h, for two sessions that never fit together; times are exact, an event after the other.
"""

import math

KEPT_BURSTS, KEPT_PAUSES = 8, 64  # as `Recent` and `Pauses` of src/core/turns.h keep
SLACK, ASSUMED = 2, 128


def typical(values):
    kept = sorted(values[-KEPT_BURSTS:])
    return kept[(len(kept) - 1) // 2] if kept else None


def patience(pauses, price):
    """As Pauses::Patience of src/core/turns.cc."""
    kept = pauses[-KEPT_PAUSES:]
    if len(kept) < KEPT_PAUSES:
        kept = [*kept, price / ASSUMED]

    def cost(waited):
        return sum(pause if pause <= waited else waited + price for pause in kept)

    candidates = [price] + [SLACK * pause for pause in kept if SLACK * pause < price]
    best = min(candidates, key=lambda waited: (cost(waited), -waited))
    return best if cost(best) <= price * len(kept) else 0.0


class Job:
    def __init__(self, phases, gpu):
        self.phases_left = phases
        self.work_left = gpu  # of the phase on the card; 0 while it pauses
        self.ready_at = 0.0  # the end of the pause
        self.active_since = 0.0
        self.idle_since = None
        self.bursts, self.gaps = [], []
        self.done_at = None

    def wants(self):
        return self.done_at is None and self.work_left > 0


class Turns:
    """`quantum`: how long a holder at work is protected; None: until it pauses, and then no longer."""

    def __init__(self, phases, gpu, pause, switch, quantum):
        self.gpu, self.pause, self.switch, self.quantum = gpu, pause, switch, quantum
        self.jobs = [Job(phases, gpu), Job(phases, gpu)]
        self.holder, self.other = self.jobs
        self.now = self.running_since = 0.0

    def patience(self):
        if self.quantum is None:
            return 0.0
        burst = typical(self.other.bursts)
        pauses = burst is not None and burst <= self.quantum
        return patience(self.holder.gaps, self.switch * (1 if pauses else 2))

    def yields_at(self):
        """When the holder gives way to the other, which waits."""
        if self.holder.done_at is not None:
            return self.now
        at = math.inf if self.quantum is None else self.running_since + self.quantum
        if self.holder.idle_since is not None:
            at = min(at, self.holder.idle_since + self.patience())
        return max(at, self.now)

    def next_event(self):
        events = [job.ready_at for job in self.jobs if job.done_at is None and job.work_left == 0]
        if self.holder.wants():
            events.append(self.now + self.holder.work_left)
        if self.other.wants():
            events.append(self.yields_at())
        return max(min(events), self.now)

    def work_until(self, instant):
        job = self.holder
        if job.wants():
            job.work_left -= instant - self.now
            if job.work_left < 1e-9:
                job.work_left = 0.0
                job.phases_left -= 1
                job.ready_at = instant + self.pause
                job.idle_since = instant
        self.now = instant

    def end_pauses(self):
        for job in self.jobs:
            if job.done_at is not None or job.work_left > 0 or job.ready_at > self.now:
                continue
            if job.phases_left == 0:
                job.done_at = job.ready_at
                continue
            job.work_left = self.gpu
            job.gaps.append(job.ready_at - job.idle_since)
            if job.gaps[-1] > self.switch:
                job.bursts.append(job.idle_since - job.active_since)
                job.active_since = job.ready_at
            job.idle_since = None

    def change_holder(self):
        self.holder, self.other = self.other, self.holder
        self.now += self.switch
        self.running_since = self.holder.active_since = self.now

    def run(self):
        while any(job.done_at is None for job in self.jobs):
            self.work_until(self.next_event())
            self.end_pauses()
            if self.other.wants() and self.yields_at() <= self.now:
                self.change_holder()
        return max(job.done_at for job in self.jobs)


def makespan(phases, gpu, pause, switch, quantum=None):
    """Seconds until both jobs are done. `quantum` as for Turns."""
    return Turns(phases, gpu, pause, switch, quantum).run()


def speedup(phases, gpu, pause, switch, quantum=None):
    """The same against one job after the other."""
    return 2 * phases * (gpu + pause) / makespan(phases, gpu, pause, switch, quantum)
