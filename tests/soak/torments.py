"""What the soak does to its workers and their daemon (soak.py)."""

import heapq
import itertools
import math
import os
import signal
import time

from harness import QUERY, REGISTER, TANDEM, frame, text

ANSWER_S = 30  # within which a daemon must answer, or another in its place
ORDER_AGAIN_S = 0.2  # one that met a daemon that was killed

# What orders may say: the session has ended, or has work under way.
FINE = ("no session or run", "some memory is still on the GPU", "host memory is full")
GARBAGE = [
    b"GET / HTTP/1.1\r\n\r\n" * 10,
    frame(QUERY, length=1 << 30),
    frame(QUERY, b"\xff\xff"),
    frame(99, b"12"),
    frame(REGISTER, b"\x60\xea" + b"x" * 100),
    frame(QUERY, text("status"))[:7],
]


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class Torments:
    """Done to sessions, workers, the daemon and the host, and undone some time later."""

    def __init__(self, soak, folder):
        self.soak = soak
        self.dice = soak.dice
        self.host_file = folder / "host"
        soak.card.env["TANDEM_HOST_AVAILABLE_FILE"] = str(self.host_file)
        self.faults_of_all = []
        self.number = itertools.count()
        self.later = []  # heap of (when, number, what): what undoes what was done
        self.killed_daemon_at = -math.inf
        self.stopped = set()
        self.orders = []

    def one_of(self, sessions):
        mine = [s for s in sessions if s["name"].startswith("w")]
        what = self.dice.choices(*zip(*self.soak.args.mix.items()))[0]
        if what in ("faults", "restart", "garbage", "hostfull", "policy"):
            getattr(self, what)()
        elif mine:
            getattr(self, what)(self.dice.choice(mine))
        else:
            return
        self.soak.counts[what] += 1

    def after(self, seconds, what):
        heapq.heappush(self.later, (time.monotonic() + seconds, next(self.number), what))

    def undo(self, all_of_it=False):
        while self.later and (all_of_it or self.later[0][0] <= time.monotonic()):
            heapq.heappop(self.later)[-1]()

    def kill(self, session):
        worker = self.soak.worker_of(session)
        if worker is None:
            return
        worker.killed = True
        if self.dice.random() < 0.2:
            worker.process.kill()  # the guard, too
        self.soak.say(f"kill {worker.name}")
        send(session["pid"], signal.SIGKILL)

    def stop(self, session):
        pid = session["pid"]
        self.soak.say(f"stop {session['name']}")
        self.stopped.add(pid)
        send(pid, signal.SIGSTOP)

        def go_on():
            send(pid, signal.SIGCONT)
            self.stopped.discard(pid)

        self.after(self.dice.choice([0.01, 0.1, 0.5, 2.0]), go_on)

    def order(self, *words):
        self.soak.say(" ".join(words))
        self.orders.append((words, self.soak.card.spawn([TANDEM, *words])))

    def reap_orders(self, wait=False):
        for order in list(self.orders):
            words, process = order
            if process.poll() is None and not wait:
                continue
            _, err = process.communicate(timeout=ANSWER_S)
            self.orders.remove(order)
            self.soak.card.processes.remove(process)
            if process.returncode == 0 or any(f in err for f in FINE):
                continue
            if time.monotonic() - self.killed_daemon_at < ANSWER_S:
                self.after(ORDER_AGAIN_S, lambda words=words: self.order(*words))
            else:
                self.soak.problem(f"tandem {words} ended with {process.returncode}: {err}")

    def suspend(self, session):
        name = session["name"] if self.dice.random() < 0.5 else str(session["id"])
        self.order("suspend", name, "--timeout", self.dice.choice(["0", "2s"]))
        # By its own name: numbers change with the daemon.
        self.after(self.dice.uniform(0.05, 3), lambda: self.order("resume", session["name"]))

    def limit(self, session):
        worker = self.soak.worker_of(session)
        if worker is None:
            return
        name, again = worker.name, worker.limit
        self.order("limit", name, "--memory", f"{self.dice.randint(2, 12)}M")
        self.after(self.dice.uniform(0.1, 4), lambda: self.order("limit", name, "--memory", again))

    def policy(self):
        """Sets another policy, of those under which no session starves."""
        rule = self.dice.choice(["interactive", "round-robin"])
        self.order("policy", self.dice.choice(["gpu0", "gpu1", "all"]), rule)

    def restart(self):
        """The daemon dies; a guard starts another."""
        if self.soak.daemon is not None:
            self.soak.say(f"kill daemon {self.soak.daemon}")
            send(self.soak.daemon, signal.SIGKILL)
            self.killed_daemon_at = time.monotonic()
            self.soak.daemon = None

    def set_faults(self, *lines):
        self.faults_of_all = lines
        for worker in self.soak.workers:
            worker.set_faults(lines)

    def sticky(self, session):
        """A kernel of one of them fails, and with it a context."""
        worker = self.soak.worker_of(session)
        if worker is None or worker.faults:
            return
        rule = f"TANDEM_SOFT_{self.dice.choice(['KILL', 'ECC'])}_LAUNCH={self.dice.randint(1, 10)}"
        self.soak.say(f"{worker.name} {rule}")
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
        self.soak.say(" ".join(lines))
        self.set_faults(*lines)
        self.after(self.dice.uniform(0.1, 2), self.set_faults)

    def hostfull(self):
        """The host has no memory left for a while, as those see it who ask before they take some."""
        self.soak.say("no memory left on the host")
        self.host_file.write_text("0")
        self.after(self.dice.uniform(0.1, 3), lambda: self.host_file.unlink(missing_ok=True))

    def garbage(self):
        try:
            with self.soak.card.connect() as connection:
                connection.sendall(self.dice.choice(GARBAGE))
        except OSError:
            pass  # no daemon just then, or it has said goodbye already
