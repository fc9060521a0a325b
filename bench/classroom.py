#!/usr/bin/env python3
"""A class in notebooks on one GPU: what its cells wait, and whether each result is right.

Each user has a real ipykernel under `tandem run`, whose device memory (60 % of the software card) lives
across its cells, so that no two users' memory fits at once. A user thinks, runs a cell under `%%gpu`, and
thinks again. Think times and bursts are drawn from a seed, both exponential, at 1:20: a cell of 1.5 s on
average, 22.5 s between cells. A wait runs from the request of the cell to its first line of work. A cell
works in steps of 20 ms and waits for each, as a loop does that prints its loss. With --queued it queues all
of its work at once: such a cell cannot be interrupted, which the simulator does not know.

Beside it, for the same users: what `tandem plan` predicts (`plan_…`), the daemon's own scheduler in
virtual time with the same draws (`sim_…`), and a GPU for one user at a time, which is taken back after
30 s without a cell, with the same draws (`exclusive_mean_s`). `alone_…` is what sharing adds to a cell
when the user is alone: the same cell with and without `%%gpu`.

`…_users` is how many users the GPU serves before the wait of one cell in a hundred exceeds `p99_bound_s`:
by `tandem plan`, simulated with `capacity_cells` cells for each user, and with a GPU for one user at a time.
"""

import heapq
import json
import random
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from _card import (
    BUDGET, BUILD, CHUNK, MIB, PATIENCE_S, TANDEM, Failed, held_share, percentile, run, say, small_card,
    software_only,
)  # fmt: skip
from _kernel import Kernel

USERS = str(BUILD / "bin" / "bench_users")
SCALE = 20
BURST_S, THINK_S, TIMEOUT_S = 30 / SCALE, 450 / SCALE, 600 / SCALE
MOVE_S = 0.05  # what the bus takes for all of the card, at any scale
BUS = BUDGET / MOVE_S  # bytes a second
LATENCY_US = 100  # of a message, with a thread to wake
HELD = held_share(0.6)
COUNTS = (2, 5, 10)
P99_BOUND_S = 120 / SCALE
CAPACITY_CELLS, MOST_USERS = 200, 40  # of each user; of a class


def draw(seed, users, cells):
    """For each user and cell: (think, work) in nanoseconds."""
    dice = random.Random(seed)

    def time_ns(mean_s):
        return round(dice.expovariate(1 / mean_s) * 1e9)

    return [[(time_ns(THINK_S), time_ns(BURST_S)) for _ in range(cells)] for _ in range(users)]


class User(threading.Thread):
    """One user: thinks and runs cells as drawn; `waits` in seconds."""

    def __init__(self, kernel, cells, queued):
        super().__init__(daemon=True)
        self.kernel, self.cells, self.queued = kernel, cells, queued
        self.waits, self.failure = [], None

    def run(self):
        try:
            for think_ns, work_ns in self.cells:
                time.sleep(think_ns / 1e9)
                ready_ns = time.monotonic_ns()
                begun_ns = self.kernel.run(f"%%gpu\nmemory.work({work_ns}, {self.queued})", "memory.begun_ns")
                self.waits.append((begun_ns - ready_ns) / 1e9)
        except Exception as failure:
            self.failure = failure


def taught(card, draws, queued):
    """The waits of all cells, and the number of wrong words."""
    kernels = [Kernel(card, f"user{number}") for number in range(len(draws))]
    for kernel in kernels:
        kernel.prepare(HELD)
    users = [User(kernel, cells, queued) for kernel, cells in zip(kernels, draws)]
    for user in users:
        user.start()
    for user in users:
        user.join()
        if user.failure is not None:
            raise user.failure
    wrong = sum(kernel.run("%%gpu\nwrong = memory.wrong_words()", "wrong") for kernel in kernels)
    for kernel in kernels:
        kernel.close()
    return [wait for user in users for wait in user.waits], wrong


def alone(card, rounds):
    """Medians in milliseconds of an empty cell, without and with `%%gpu`, in a kernel that has its memory."""
    kernel = Kernel(card, "alone")
    kernel.prepare(HELD)
    pairs = [(kernel.seconds("pass"), kernel.seconds("%%gpu\npass")) for _ in range(rounds + 1)][1:]
    kernel.close()
    return [round(statistics.median(times) * 1e3, 3) for times in zip(*pairs)]


def simulated(policy, draws):
    """Waits of the same users in virtual time, by the daemon's scheduler."""
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as made:
        files = [Path(made) / f"user{number}" for number in range(len(draws))]
        for file, cells in zip(files, draws):
            file.write_text("".join(f"{think} {work}\n" for think, work in cells))
        argv = [USERS, "--policy", policy, "--time-scale", SCALE, "--card", BUDGET, "--chunk", CHUNK,
                "--memory", HELD, "--bus", BUS, "--latency-us", LATENCY_US, *files]  # fmt: skip
        argv = [str(word) for word in argv]
        output = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    return [int(line.split()[1]) / 1e9 for line in output.stdout.splitlines()]


def planned(users):
    """What `tandem plan` predicts: mean and p99 of the wait in seconds, and how many users the bound lets be."""
    argv = [TANDEM, "plan", "--users", users, "--burst", f"{BURST_S}s", "--edit", f"{THINK_S}s",
            "--memory", f"{HELD // MIB}M", "--card", f"{BUDGET // MIB}M", "--bus", f"{BUS / MIB:.0f}M",
            "--bound", f"{P99_BOUND_S}s", "--json"]  # fmt: skip
    argv = [str(word) for word in argv]
    output = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    plan = json.loads(output.stdout)
    return plan["mean_wait_s"], plan["p99_wait_s"], plan["most_users"]


def exclusive(draws):
    """Waits where one user at a time has the GPU, in the order of asking, and gives it up after
    TIMEOUT_S without a cell, or after the last one."""
    waits, queue, holder, free_at = [], [], None, 0.0
    ready = [(cells[0][0] / 1e9, user, 0) for user, cells in enumerate(draws)]
    heapq.heapify(ready)

    def work(user, cell, begin):
        """The user's next cell, and until when the user keeps the GPU."""
        end = begin + draws[user][cell][1] / 1e9
        if cell + 1 == len(draws[user]):
            return end
        heapq.heappush(ready, (end + draws[user][cell + 1][0] / 1e9, user, cell + 1))
        return end + TIMEOUT_S

    while ready or queue:
        if queue and (not ready or ready[0][0] >= free_at):  # it comes free before the next cell
            since, user, cell = queue.pop(0)
            begin = max(free_at, since)
            waits.append(begin - since)
            holder, free_at = user, work(user, cell, begin)
            continue
        since, user, cell = heapq.heappop(ready)
        if holder == user and since < free_at:
            waits.append(0.0)
            free_at = work(user, cell, since)
        else:
            queue.append((since, user, cell))
    return waits


def measured(users, args):
    cells = 3 if args.quick else -(-args.cells // users)
    draws = draw(args.seed, users, cells)
    if args.quick:
        draws = [[(think // 10, work // 10) for think, work in each] for each in draws]
    options = {"TANDEM_POLICY": args.policy, "TANDEM_TIME_SCALE": str(SCALE)}
    with small_card(f"{BUS:.0f}B/s", **options) as card:
        bare_ms, gpu_ms = alone(card, 10 if args.quick else 100)
        waits, wrong = taught(card, draws, args.queued)
    sim = simulated(args.policy, draws)
    if len(waits) != len(sim):
        raise Failed(f"{len(waits)} cells were done, not {len(sim)}")
    plan_mean, plan_p99, _ = planned(users)
    return {
        "users": users,
        "cells": len(waits),
        "policy": args.policy,
        "queued": args.queued,
        "mean_wait_s": round(statistics.mean(waits), 4),
        "p99_wait_s": round(percentile(waits, 0.99), 4),
        "plan_mean_s": round(plan_mean, 4),
        "plan_p99_s": round(plan_p99, 4),
        "sim_mean_s": round(statistics.mean(sim), 4),
        "sim_p99_s": round(percentile(sim, 0.99), 4),
        "exclusive_mean_s": round(statistics.mean(exclusive(draws)), 4),
        "alone_bare_ms": bare_ms,
        "alone_gpu_ms": gpu_ms,
        "wrong_results": wrong,
        "seed": args.seed,
        "scale": f"1:{SCALE}",
    }


def most_users(p99_of):
    """The largest class, from 1, whose `p99_of(users)` is within the bound; none above MOST_USERS is tried."""
    users = 0
    while users < MOST_USERS and p99_of(users + 1) <= P99_BOUND_S:
        users += 1
    return users


def capacity(args):
    cells = 5 if args.quick else CAPACITY_CELLS

    def drawn(users):
        return draw(args.seed, users, cells)

    return {
        "p99_bound_s": P99_BOUND_S,
        "capacity_cells": cells,
        "plan_users": planned(COUNTS[-1])[2],
        "sim_users": most_users(lambda users: percentile(simulated(args.policy, drawn(users)), 0.99)),
        "exclusive_users": most_users(lambda users: percentile(exclusive(drawn(users)), 0.99)),
    }


def measure(args):
    software_only("the card and the bus have to be of a size and speed")
    served = capacity(args)
    counts = COUNTS if args.users is None else (args.users,)
    for users in counts[:1] if args.quick else counts:
        say(f"classroom: {users} users")
        yield {**measured(users, args), **served}


if __name__ == "__main__":
    run("classroom", __doc__, measure, options=(
        (("--users",), {"type": int, "help": f"number of users; without it {', '.join(map(str, COUNTS))}"}),
        (("--cells",), {"type": int, "default": 200, "help": "of all users together (default %(default)s)"}),
        (("--policy",), {"default": "interactive", "help": "of the daemon (default %(default)s)"}),
        (("--queued",), {"action": "store_true", "help": "cells queue all of their work at once"}),
        (("--seed",), {"type": int, "default": 1, "help": "of the draws"}),
    ))  # fmt: skip
