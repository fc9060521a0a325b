"""The programs that share the cards in the soak (soak.py)."""

import time

from harness import BUILD, MIB

WORKER = BUILD / "bin" / "soak_worker"
DEVICES = 2
HELD = 12 * MIB  # by a worker at most


class Worker:
    """A soak_worker under `tandem run`, in its place among the workers."""

    def __init__(self, soak, place, generation, seconds):
        self.place, self.generation = place, generation
        self.name = f"w{place}.{generation}"
        self.killed = False
        self.seen = time.monotonic()  # by the daemon, as its listing says
        self.breaks = 0  # how many of its contexts may have broken
        self.faults, self.faults_file = [], soak.faults_folder / self.name
        self.set_faults(soak.torments.faults_of_all)
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
