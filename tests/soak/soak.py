#!/usr/bin/python3
"""Many workers share two software GPUs that are too small for them, while everything is done to them
that people, the machine and other programs may do. Whoever was not killed must end right, everybody
must be served, and nothing may be left. docs/testing.md says more.

What is done comes from the seed, and to whom; what the workers are doing just then does not. Prints
one JSON object; status 1 if there was any problem.
"""

import argparse
import collections
import heapq
import itertools
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "e2e"))
from harness import BUILD, MIB, QUERY, REGISTER, SOCKET, TANDEM, TANDEMD, Card, frame, text  # noqa: E402

WORKER = BUILD / "bin" / "soak_worker"
DEVICES = 2
# Of a card, for each worker on it; of what a worker holds at most, less than that can be shared.
VRAM_A_WORKER, HELD = 6 * MIB, 12 * MIB
CONTEXT = 1 * MIB
SERVED_S = 90  # within which everybody must have had the card: two processors, and dozens of workers
ANSWER_S = 30  # within which a daemon must answer, or another in its place
END_S = 180  # for workers to look at everything they have and end
ORDER_AGAIN_S = 0.2  # one that met a daemon that was killed
POLL_S = 0.05
PROBE_S = 2.0

# What orders may say: the session has ended, or has work under way.
FINE = ("no session or run", "not all of it has left the card", "host memory is full")
GARBAGE = [
    b"GET / HTTP/1.1\r\n\r\n" * 10,
    frame(QUERY, length=1 << 30),
    frame(QUERY, b"\xff\xff"),
    frame(99, b"12"),
    frame(REGISTER, b"\x60\xea" + b"x" * 100),
    frame(QUERY, text("status"))[:7],
]


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


class Worker:
    """A soak_worker under `tandem run`, in its place among the workers."""

    def __init__(self, soak, place, generation, seconds):
        self.place, self.generation = place, generation
        self.name = f"w{place}.{generation}"
        self.killed = False
        self.seen = time.monotonic()  # by the daemon, as its listing says
        self.breaks = 0  # how many of its contexts may have broken
        self.faults, self.faults_file = [], soak.faults_folder / self.name
        self.set_faults(soak.faults_of_all)
        self.stderr = open(soak.logs / self.name, "w+")
        seed = soak.dice.getrandbits(32)
        faults = f"TANDEM_SOFT_FAULTS_FILE={self.faults_file}"
        # One of eight has two threads on its device, and one of eight one on each.
        first = place % DEVICES
        devices = {5: [first, first], 6: [first, 1 - first]}.get(place % 8, [first])
        held, flags = str(HELD), []
        self.limit = "all"
        # And two of sixteen want more than a card has.
        if place % 16 in (4, 7):
            held, self.limit = f"{soak.vram}-{soak.vram * 5 // 4}", f"{soak.vram * 2}B"
            flags = ["--memory", self.limit, "--oversubscribe"]
        argv = [WORKER, ",".join(map(str, devices)), seed, held, f"{seconds:.1f}"]
        argv += self.role(soak.pairs)
        # The faults are the worker's: not those of a daemon that its guard starts.
        self.process = soak.card.shared(
            ["env", faults, *argv], "--name", self.name, *flags, stderr=self.stderr
        )

    def role(self, folder):
        """Of eight, 0 shares memory with 2, and 1 with 3; at times the one lends that stays."""
        group, member = divmod(self.place, 8)
        if member > 3:
            return []
        word = "lend" if (member < 2) == (group % 2 == 0) else "borrow"
        return [f"{word}:{folder / f'{group}.{member % 2}'}"]

    def set_faults(self, those_of_all):
        new = self.faults_file.with_name(f"{self.name}.new")
        new.write_text("".join(line + "\n" for line in [*those_of_all, *self.faults]))
        new.replace(self.faults_file)

    def result(self):
        """What it printed, and what it had to say."""
        out = self.process.stdout.read()
        self.process.stdout.close()
        self.stderr.seek(0)
        err = self.stderr.read()
        self.stderr.close()
        return out, err


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
        self.host_file = folder / "host"
        self.card.env["TANDEM_HOST_AVAILABLE_FILE"] = str(self.host_file)
        self.faults_folder = folder / "faults"
        self.faults_folder.mkdir()
        self.faults_of_all = []
        self.begun = time.monotonic()
        self.end = self.begun + args.seconds
        self.number = itertools.count()
        self.later = []  # heap of (when, number, what): what undoes what was done
        self.counts = collections.Counter()
        self.problems = []
        self.moved = {}  # (daemon, gpu) -> (hand-overs, bytes moved)
        self.waits = {}  # (daemon, session) -> (what it was in, since when)
        self.longest_wait = 0.0
        self.most_allocated = 0  # of one session's
        self.most_in_files = 0  # of all, as promised
        self.answered = self.begun
        self.daemon = None
        self.killed_daemon_at = -math.inf
        self.budgets = {}  # of each card: at first, at least, at last
        self.short = {}  # since when a card's budget is less than at first
        self.stopped = set()
        self.orders = []
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
            if session["pid"] in self.stopped:
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

    # ---- what is done to them

    def torment(self, sessions):
        mine = [s for s in sessions if s["name"].startswith("w")]
        what = self.dice.choices(*zip(*self.args.mix.items()))[0]
        if what in ("faults", "restart", "garbage", "hostfull", "policy"):
            getattr(self, what)()
        elif mine:
            getattr(self, what)(self.dice.choice(mine))
        else:
            return
        self.counts[what] += 1

    def after(self, seconds, what):
        heapq.heappush(self.later, (time.monotonic() + seconds, next(self.number), what))

    def undo(self, all_of_it=False):
        while self.later and (all_of_it or self.later[0][0] <= time.monotonic()):
            heapq.heappop(self.later)[-1]()

    def signal(self, pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    def kill(self, session):
        worker = self.worker_of(session)
        if worker is None:
            return
        worker.killed = True
        if self.dice.random() < 0.2:
            worker.process.kill()  # the guard, too
        self.say(f"kill {worker.name}")
        self.signal(session["pid"], signal.SIGKILL)

    def stop(self, session):
        pid = session["pid"]
        self.say(f"stop {session['name']}")
        self.stopped.add(pid)
        self.signal(pid, signal.SIGSTOP)

        def go_on():
            self.signal(pid, signal.SIGCONT)
            self.stopped.discard(pid)

        self.after(self.dice.choice([0.01, 0.1, 0.5, 2.0]), go_on)

    def order(self, *words):
        self.say(" ".join(words))
        self.orders.append((words, self.card.spawn([TANDEM, *words])))

    def reap_orders(self, wait=False):
        for order in list(self.orders):
            words, process = order
            if process.poll() is None and not wait:
                continue
            _, err = process.communicate(timeout=ANSWER_S)
            self.orders.remove(order)
            self.card.processes.remove(process)
            if process.returncode == 0 or any(f in err for f in FINE):
                continue
            if time.monotonic() - self.killed_daemon_at < ANSWER_S:
                self.after(ORDER_AGAIN_S, lambda words=words: self.order(*words))
            else:
                self.problem(f"tandem {words} ended with {process.returncode}: {err}")

    def suspend(self, session):
        name = session["name"] if self.dice.random() < 0.5 else str(session["id"])
        self.order("suspend", name, "--timeout", self.dice.choice(["0", "2s"]))
        # By its own name: numbers change with the daemon.
        self.after(self.dice.uniform(0.05, 3), lambda: self.order("resume", session["name"]))

    def limit(self, session):
        worker = self.worker_of(session)
        if worker is None:
            return
        name, again = worker.name, worker.limit
        self.order("limit", name, "--memory", f"{self.dice.randint(2, 12)}M")
        self.after(self.dice.uniform(0.1, 4), lambda: self.order("limit", name, "--memory", again))

    def policy(self):
        """Another rule for who is next, of those under which nobody waits without end."""
        rule = self.dice.choice(["interactive", "round-robin"])
        self.order("policy", self.dice.choice(["gpu0", "gpu1", "all"]), rule)

    def restart(self):
        """The daemon dies; a guard starts another."""
        if self.daemon is not None:
            self.say(f"kill daemon {self.daemon}")
            self.signal(self.daemon, signal.SIGKILL)
            self.killed_daemon_at = time.monotonic()
            self.daemon = None

    def worker_of(self, session):
        """The worker whose session that is; None if it has ended."""
        worker = next((w for w in self.workers if w.name == session["name"]), None)
        return None if worker is None or worker.process.poll() is not None else worker

    def set_faults(self, *lines):
        self.faults_of_all = lines
        for worker in self.workers:
            worker.set_faults(lines)

    def sticky(self, session):
        """A kernel of one of them fails, and with it a context."""
        worker = self.worker_of(session)
        if worker is None or worker.faults:
            return
        rule = f"TANDEM_SOFT_{self.dice.choice(['KILL', 'ECC'])}_LAUNCH={self.dice.randint(1, 10)}"
        self.say(f"{worker.name} {rule}")
        worker.breaks += 1
        worker.faults = [rule]
        worker.set_faults(self.faults_of_all)

        def heal():
            worker.faults = []
            worker.set_faults(self.faults_of_all)

        self.after(self.dice.uniform(1, 10), heal)

    def faults(self):
        """Calls that allocate, map or copy fail, one or some or all, and the bus may be slow."""
        kind = self.dice.choice(["CREATE", "MAP", "COPY", "ALLOC", "REGISTER"])
        nth = self.dice.randint(1, 64)
        one_in = f"1/{self.dice.choice([5, 20, 50])}:{self.dice.getrandbits(16)}"
        lines = [
            f"TANDEM_SOFT_FAIL_{kind}={self.dice.choice([one_in, one_in, nth, f'every:{nth}'])}",
            f"TANDEM_SOFT_PCIE={self.dice.choice(['4GB/s', '4GB/s', '100MB/s'])}",
        ]
        self.say(" ".join(lines))
        self.set_faults(*lines)
        self.after(self.dice.uniform(0.1, 2), self.set_faults)

    def hostfull(self):
        """The host has no memory left for a while, as those see it who ask before they take some."""
        self.say("no memory left on the host")
        self.host_file.write_text("0")
        self.after(self.dice.uniform(0.1, 3), lambda: self.host_file.unlink(missing_ok=True))

    def garbage(self):
        try:
            with self.card.connect() as connection:
                connection.sendall(self.dice.choice(GARBAGE))
        except OSError:
            pass  # no daemon just then, or it has said goodbye already

    # ---- all of it

    def run(self):
        print(f"--seed {self.args.seed}", file=sys.stderr, flush=True)
        self.card.start_daemon()
        self.daemon = self.card.daemon.pid
        self.workers = [self.start_worker(place, 0) for place in range(self.args.workers)]
        next_torment = next_probe = time.monotonic()
        while time.monotonic() < self.end and len(self.problems) < self.args.most_problems:
            sessions = self.look()
            self.undo()
            self.reap()
            self.reap_orders()
            now = time.monotonic()
            if self.args.mix and now >= next_torment:
                self.torment(sessions)
                next_torment = now + self.dice.expovariate(self.args.rate)
            if now >= next_probe:
                self.probe()
                next_probe = now + PROBE_S
            self.card.daemon.poll()
            time.sleep(POLL_S)
        self.finish()

    def finish(self):
        self.undo(all_of_it=True)
        self.set_faults()
        deadline = time.monotonic() + END_S
        while any(not w.process.stdout.closed for w in self.workers):
            suspended = [s["name"] for s in self.look() if s["suspended"]]
            if suspended and not self.orders:  # the order to resume it met no daemon that knew it
                self.order("resume", suspended[0])
            self.undo()
            self.reap()
            self.reap_orders()
            if time.monotonic() > deadline:
                late = [w.name for w in self.workers if not w.process.stdout.closed]
                self.problem(f"{late} have not ended: {json.dumps(self.card.ask('sessions'))}")
                break
            time.sleep(POLL_S)
        self.reap_orders(wait=True)
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
        self.signal(status["pid"], signal.SIGTERM)
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
            soak.undo(all_of_it=True)
            soak.card.close()
    print(json.dumps(soak.summary()))
    sys.exit(1 if soak.problems else 0)


if __name__ == "__main__":
    main()
