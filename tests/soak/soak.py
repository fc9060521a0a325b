#!/usr/bin/python3
"""Many workers share two software GPUs that are too small for them, while everything is done to them
that people, the machine and other programs may do. A worker that is not killed must end right, every
session must be served, and nothing may be left. docs/testing.md says more.

What is done comes from the seed, and to whom; what the workers are doing just then does not. Prints
one JSON object; status 1 if there was any problem.
"""

import argparse
import collections
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "e2e"))
from harness import MIB, SOCKET, TANDEMD, Card  # noqa: E402
from torments import ANSWER_S, Torments, send  # noqa: E402
from workers import DEVICES, Worker  # noqa: E402

VRAM_A_WORKER = 6 * MIB  # of its card: of what workers may hold, less than that can be shared
CONTEXT = 1 * MIB
SERVED_S = 90  # within which every waiter must have had the card: two processors, and dozens of workers
END_S = 180  # for workers to look at everything they have and end
POLL_S = 0.05
PROBE_S = 2.0


def memory_held_by(pid):
    """What a process has descriptors of that is memory: of a daemon's sessions, and what they share."""
    folder = f"/proc/{pid}/fd"
    names = []
    for number in os.listdir(folder):
        try:
            names.append(os.readlink(f"{folder}/{number}"))
        except FileNotFoundError:
            pass  # closed meanwhile
    return [name for name in names if name.startswith("/memfd:")]


class Soak:
    def __init__(self, args, folder):
        self.args = args
        self.dice = random.Random(args.seed)
        self.vram = VRAM_A_WORKER * (args.workers // DEVICES) + 4 * CONTEXT + 2 * MIB
        self.card = Card(
            folder, vram=str(self.vram), context=str(CONTEXT), bus="4GB/s", devices="one,two"
        )
        self.card.env["TANDEM_SEED"] = str(args.seed)
        if args.chaos:
            self.card.env["TANDEM_CHAOS"] = "1"
        # For half of what the cards hold; the rest of what leaves them lies in files.
        self.card.env["TANDEM_HOST_MEMORY"] = f"{self.vram}B"
        self.spill = folder / "spill"
        self.spill.mkdir()
        self.card.env["TANDEM_SPILL"] = f"{self.spill}:8G"
        self.logs = folder / "logs"
        self.logs.mkdir()
        self.pairs = folder / "pairs"
        self.pairs.mkdir()
        self.faults_folder = folder / "faults"
        self.faults_folder.mkdir()
        self.torments = Torments(self, folder)
        self.begun = time.monotonic()
        self.end = self.begun + args.seconds
        self.counts = collections.Counter()
        self.problems = []
        self.moved = {}  # (daemon, gpu) -> (hand-overs, bytes moved)
        self.waits = {}  # (daemon, session) -> (what it was in, since when)
        self.longest_wait = 0.0
        self.most_allocated = 0  # of one session's
        self.most_in_files = 0  # of all, as promised
        self.answered = self.begun
        self.daemon = None
        self.budgets = {}  # of each card: at first, at least, at last
        self.short = {}  # since when a card's budget is less than at first
        self.workers = []

    def problem(self, what):
        self.problems.append(f"{time.monotonic() - self.begun:.1f} s: {what}")
        print(self.problems[-1], file=sys.stderr, flush=True)

    def say(self, what):
        if self.args.verbose:
            print(f"{time.monotonic() - self.begun:.1f} s: {what}", file=sys.stderr, flush=True)

    # ---- workers

    def start_worker(self, place, generation):
        left = self.end - time.monotonic()
        # Half of them stay; the others come and go.
        seconds = left if place % 4 < 2 else min(left, self.dice.uniform(2, 30))
        self.counts["sessions"] += 1
        return Worker(self, place, generation, seconds)

    def reap(self):
        for index, worker in enumerate(self.workers):
            if worker.process.poll() is None or worker.process.stdout.closed:
                continue
            self.finished(worker)
            if time.monotonic() < self.end - 1:
                self.workers[index] = self.start_worker(worker.place, worker.generation + 1)

    def finished(self, worker):
        self.card.processes.remove(worker.process)
        out, err = worker.result()
        if worker.killed:
            return
        if worker.process.returncode != 0:
            self.problem(f"{worker.name} ended with {worker.process.returncode}: {err[-2000:]}")
        try:
            counts = json.loads(out)
        except ValueError:
            return  # it ended with another status than 0, which has been said
        self.counts.update(counts)
        if counts["broken"] > worker.breaks:
            self.problem(f"{worker.name}: {counts['broken']} broken, {worker.breaks} on purpose")

    # ---- what is always true

    def look(self):
        status, listing = self.card.ask("status"), self.card.ask("sessions")
        now = time.monotonic()
        if status is None or listing is None:
            if now - self.answered > ANSWER_S:
                self.problem(f"no daemon has answered for {ANSWER_S} s")
                self.answered = now
            return []
        self.answered = now
        self.daemon = status["pid"]
        for gpu in status["gpus"]:
            self.look_at_gpu(gpu)
        self.most_in_files = max(self.most_in_files, status["spill_promised_bytes"])
        sessions = listing["sessions"]
        for session in sessions:
            self.look_at_session(session, now)
        self.look_for_lost(sessions, now)
        return sessions

    def look_for_lost(self, sessions, now):
        """Whether one that runs is unknown to the daemon, as it would be if it went on unshared."""
        names = {session["name"] for session in sessions}
        for worker in self.workers:
            if worker.name in names or worker.process.poll() is not None:
                worker.seen = now
            elif now - worker.seen > ANSWER_S:
                self.problem(f"{worker.name} has been no session for {ANSWER_S} s")
                worker.seen = now

    def look_at_gpu(self, gpu):
        index, budget = gpu["index"], gpu["budget_bytes"]
        if gpu["charged_bytes"] > budget + gpu["chunk_bytes"]:  # which is lent in a hand-over
            self.problem(f"gpu {index}: {gpu['charged_bytes']} charged of {budget}")
        self.moved[self.daemon, index] = (gpu["handovers"], gpu["out_bytes"] + gpu["in_bytes"])
        first, least, _ = self.budgets.get(index, (budget, budget, budget))
        self.budgets[index] = (first, min(budget, least), budget)
        now = time.monotonic()
        since = self.short.setdefault(index, now) if budget < first else self.short.pop(index, now)
        if now - since > SERVED_S:
            self.problem(f"gpu {index}: the budget has been {budget} of {first} for {SERVED_S} s")
            self.short[index] = now

    def look_at_session(self, session, now):
        self.most_allocated = max(self.most_allocated, session["allocated_bytes"])
        key, state = (self.daemon, session["id"]), (session["state"], session["leases"])
        seen, since = self.waits.get(key, (None, now))
        if seen != state:
            self.waits[key] = (state, now)
        elif session["state"] in ("waiting", "restoring", "releasing", "suspending", "stuck"):
            if session["pid"] in self.torments.stopped:
                self.waits[key] = (state, now)
                return
            self.longest_wait = max(self.longest_wait, now - since)
            if now - since > SERVED_S:
                self.problem(f"{session['state']} for {SERVED_S} s: {json.dumps(session)}")
                self.waits[key] = (state, now)

    def probe(self):
        """Bytes in use of each card, as a program sees it that runs bare."""
        out = self.card.bare([TANDEMD, "--probe"]).communicate(timeout=ANSWER_S)[0]
        self.card.processes.pop()
        devices = json.loads(out)["devices"]
        for device in devices:
            if device["used_bytes"] > device["total_bytes"]:
                self.problem(f"more is used than there is: {device}")
        return [device["used_bytes"] for device in devices]

    def worker_of(self, session):
        """The worker whose session that is; None if it has ended."""
        worker = next((w for w in self.workers if w.name == session["name"]), None)
        return None if worker is None or worker.process.poll() is not None else worker

    # ---- all of it

    def run(self):
        print(f"--seed {self.args.seed}", file=sys.stderr, flush=True)
        self.card.start_daemon()
        self.daemon = self.card.daemon.pid
        self.workers = [self.start_worker(place, 0) for place in range(self.args.workers)]
        next_torment = next_probe = time.monotonic()
        while time.monotonic() < self.end and len(self.problems) < self.args.most_problems:
            sessions = self.look()
            self.torments.undo()
            self.reap()
            self.torments.reap_orders()
            now = time.monotonic()
            if self.args.mix and now >= next_torment:
                self.torments.one_of(sessions)
                next_torment = now + self.dice.expovariate(self.args.rate)
            if now >= next_probe:
                self.probe()
                next_probe = now + PROBE_S
            self.card.daemon.poll()
            time.sleep(POLL_S)
        self.finish()

    def finish(self):
        self.torments.undo(all_of_it=True)
        self.torments.set_faults()
        deadline = time.monotonic() + END_S
        while any(not w.process.stdout.closed for w in self.workers):
            suspended = [s["name"] for s in self.look() if s["suspended"]]
            if suspended and not self.torments.orders:  # the order to resume it met no daemon that knew it
                self.torments.order("resume", suspended[0])
            self.torments.undo()
            self.reap()
            self.torments.reap_orders()
            if time.monotonic() > deadline:
                late = [w.name for w in self.workers if not w.process.stdout.closed]
                self.problem(f"{late} have not ended: {json.dumps(self.card.ask('sessions'))}")
                break
            time.sleep(POLL_S)
        self.torments.reap_orders(wait=True)
        self.look_at_the_end()

    def look_at_the_end(self):
        deadline = time.monotonic() + ANSWER_S
        while (left := self.what_is_left()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        for what in left:
            self.problem(what)
        self.end_daemon()

    def end_daemon(self):
        status = self.card.ask("status")
        if status is None:
            return
        send(status["pid"], signal.SIGTERM)
        deadline = time.monotonic() + ANSWER_S
        while (self.card.runtime / SOCKET).exists() and time.monotonic() < deadline:
            time.sleep(POLL_S)
        left = sorted(os.listdir(self.card.runtime))
        if SOCKET in left:
            self.problem(f"a daemon that was asked to end has left {left}")
        self.say(f"left in the directory of the socket: {left}")

    def what_is_left(self):
        status, listing = self.card.ask("status"), self.card.ask("sessions")
        if status is None or listing is None:
            return ["no daemon answers at the end"]
        left = [f"a session: {json.dumps(session)}" for session in listing["sessions"]]
        for gpu in status["gpus"]:
            whole = self.budgets[gpu["index"]][0]
            if gpu["charged_bytes"] or gpu["holders"] or gpu["waiting"] or gpu["budget_bytes"] != whole:
                left.append(f"in the books, with a budget of {whole} at first: {json.dumps(gpu)}")
        if status["host_promised_bytes"]:
            left.append(f"{status['host_promised_bytes']} bytes promised of the host")
        for index, used in enumerate(self.probe()):
            if used:
                left.append(f"{used} bytes on card {index}")
        left += [f"a descriptor of the daemon's: {name}" for name in memory_held_by(status["pid"])]
        left += [f"a spill file with a name: {name}" for name in os.listdir(self.spill)]
        return left + [f"/dev/shm/{n}" for n in os.listdir("/dev/shm") if n.startswith("tandem")]

    def summary(self):
        handovers, moved = (sum(column) for column in zip(*self.moved.values()))
        return {
            "seconds": round(time.monotonic() - self.begun, 1),
            "seed": self.args.seed,
            "workers": self.args.workers,
            **{name: self.counts[name] for name in ("sessions", *self.args.mix)},
            "handovers": handovers,
            "handover_bytes": moved,
            **{k: v for k, v in self.counts.items() if k not in self.args.mix and k != "sessions"},
            "longest_wait_s": round(self.longest_wait, 1),
            "most_allocated_bytes": self.most_allocated,
            "most_in_files_bytes": self.most_in_files,
            "budget_bytes": list(self.budgets.values()),
            "problems": self.problems,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("minutes", type=float)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--chaos", action="store_true", help="a daemon that takes the card from all")
    parser.add_argument("--only", help="comma-separated: only these things are done to them")
    parser.add_argument("--rate", type=float, default=4.0, help="how many a second")
    parser.add_argument("--verbose", action="store_true", help="say what is done")
    args = parser.parse_args()
    mix = {"kill": 2, "stop": 4, "suspend": 4, "limit": 3, "restart": 1, "faults": 3, "sticky": 2}
    mix |= {"hostfull": 2, "garbage": 2, "policy": 1}
    chosen = args.only.split(",") if args.only is not None else mix
    args.mix = {name: weight for name, weight in mix.items() if name in chosen}
    args.seconds, args.most_problems = args.minutes * 60, 20
    with tempfile.TemporaryDirectory(prefix="tandem-soak-") as folder:
        soak = Soak(args, Path(folder))
        try:
            soak.run()
        finally:
            soak.torments.undo(all_of_it=True)
            soak.card.close()
    print(json.dumps(soak.summary()))
    sys.exit(1 if soak.problems else 0)


if __name__ == "__main__":
    main()
