#!/usr/bin/env python3
"""Checks Tandem on a real NVIDIA GPU: what CI, which has none, cannot.

    ./dev test --gpu            or, on a machine without the build's tools:
    python3 tests/gpu/check.py --build BUILD --out DIR [STEP...]

Each step has a time limit and runs in processes of its own. Results are JSON lines in DIR/results.jsonl,
output of programs is in DIR/logs. Steps, in the order in which they run without STEP:

  machine      which card, driver, C library and memory
  doctor       `tandemd --probe` and `tandem doctor`
  frameworks   PyTorch, CuPy, Numba, Triton and JAX print digests of what they computed; without Tandem,
               then all at once under it. Equal bit for bit.
  oversubscribed  two PyTorch trainers that want 60 % of the card each, at once; digests as above
  pauses       two such trainers that pause as long as they work, in long phases and in short ones. Together
               they take at most 1.05 times as long as one after the other.
  notebooks    two notebooks that want 60 % of the card each, cell by cell
  suspended    a PyTorch trainer that is suspended and resumed ten times; digests as above
  seeing       listings and NVML, with a program beside Tandem
  faults       a killed daemon and a killed trainer: the others' results are right
  containers   two trainers in containers, one of them detached in its work, and `attach` of two more
  conformance  the driver's conformance suite, each group in a process, without Tandem and under it.
               A test that passes without Tandem must pass under it.
  benchmarks   `handover`, `release`, `overhead` and `alloc`, short

Only memory of plain allocations is used beyond the card. No setting of the card is changed.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from machine import Machine, Run

# Holds 4 GiB beside Tandem.
BESIDE = """import sys, torch
held = torch.ones(2**30, device="cuda")
torch.cuda.synchronize()
print("ready", flush=True)
sys.stdin.read()"""
NVML = """import pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
memory = pynvml.nvmlDeviceGetMemoryInfo(device)
print(memory.total >> 20, memory.used >> 20, len(pynvml.nvmlDeviceGetComputeRunningProcesses(device)))"""

HERE = Path(__file__).resolve().parent
# Why a test of the conformance suite skips that runs in a process, or on a card, of its own.
ALONE = re.compile("run the test alone|TANDEM_TEST_ALONE")
STEPS = ("machine", "doctor", "frameworks", "oversubscribed", "pauses", "notebooks", "suspended",
         "seeing", "faults", "containers", "conformance", "benchmarks")
FRAMEWORKS = ("torch", "cupy", "numba", "triton", "jax")
AT_ONCE = 10  # processes of the suite


class Check(Machine):
    """The steps."""

    def machine(self):
        commands = {
            "card": "nvidia-smi --query-gpu=name,memory.total,memory.used,driver_version,pcie.link.gen.current,"
                    "pcie.link.width.current,compute_mode,mig.mode.current --format=csv,noheader",
            "libc": "ldd --version | head -1",
            "kernel": "uname -srm",
            "system": "grep PRETTY /etc/os-release",
            "processors": "nproc; lscpu | grep -i 'model name'",
            "memory": "free -g | sed -n 2p; ulimit -l; df -h /dev/shm | tail -1",
            "driver_files": "ldconfig -p | grep -E 'libcuda.so|libnvidia-ml'; ls -la /dev/nvidia*",
            "huge_pages": "cat /sys/kernel/mm/transparent_hugepage/enabled /sys/kernel/mm/transparent_hugepage/shmem_enabled",
        }  # fmt: skip
        for name, command in commands.items():
            done = self.go("machine", ["bash", "-c", command], 20)
            self.say("machine", what=name, text=done.output.strip())

    def doctor(self):
        probe = self.go("probe", [self.tandemd, "--probe"], 30)
        self.say("doctor", what="probe", ok=probe.status == 0, seconds=probe.seconds, text=probe.output.strip()[:600])
        daemon = self.daemon()
        done = self.go("doctor", [self.tandem, "doctor", "--json"], 30)
        try:
            bad = [[c["check"], f["code"], f["sentence"]] for c in json.loads(done.output)["checks"]
                   for f in c["findings"] if f["severity"] not in ("ok",)]  # fmt: skip
        except (ValueError, KeyError):
            bad = done.output[:600]
        self.say("doctor", what="doctor", ok=done.status == 0, seconds=done.seconds, notes=bad)
        status = self.go("status", [self.tandem, "status", "--json"], 20)
        self.say("doctor", what="status", text=status.output.strip()[:800])
        self.end_daemon(daemon)

    def digests(self, label, shared, options=(), names=FRAMEWORKS, limit_s=90, **variables):
        """What each framework computed, all at once: {name: digest}."""
        def one(name):
            argv = [sys.executable, str(HERE / "frameworks.py"), name, *options]
            return self.go(f"{name}-{label}", self.shared(argv) if shared else argv, limit_s, **variables)
        with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
            runs = dict(zip(names, pool.map(one, names)))
        found = {}
        for name, run in runs.items():
            lines = [line for line in run.output.splitlines() if line.startswith("{")]
            found[name] = (run, json.loads(lines[-1]) if lines and run.status == 0 else None)
        return found

    def frameworks(self):
        bare = self.digests("bare", False)
        daemon = self.daemon()
        shared = self.digests("tandem", True)
        self.end_daemon(daemon)
        for name in FRAMEWORKS:
            (one, alone), (two, beside) = bare[name], shared[name]
            equal = alone is not None and beside is not None and alone["digests"] == beside["digests"]
            differ = [k for k in alone["digests"] if beside["digests"].get(k) != alone["digests"][k]] if alone and beside else None
            if alone is None:
                equal = None  # it does not run here
            self.say("frameworks", program=name, ok=equal, bare=one.end, tandem=two.end, bare_s=one.seconds,
                     tandem_s=two.seconds, differ=differ, tail=None if equal else two.output[-300:])  # fmt: skip

    def suite(self):
        program = str(self.build / "bin" / "tests" / "driver_test")
        listed = self.go("list", [program, "--gtest_list_tests"], 20).output
        groups, group = {}, None
        for line in listed.splitlines():
            if line.startswith("  DISABLED_"):
                continue  # what tests start in other processes
            if line.startswith("  "):
                groups[group].append(group + line.split("#")[0].strip())
            elif line.endswith(".") or "# " in line:
                group = line.split("#")[0].strip()
                groups[group] = []
        groups.pop("FaultsTest.", None)
        return program, groups

    def run_group(self, label, shared, program, tests, until, **variables):
        """{test: ok, failed, skipped, crash or timeout}. After a crash or a hang, the other tests run anew."""
        results, text, left = {}, {}, list(tests)
        while left and time.monotonic() < until:
            argv = [program, "--gtest_filter=" + ":".join(left), "--gtest_color=no"]
            limit = max(1, min(20 + 5 * len(left), until - time.monotonic()))
            run = self.go(f"conformance-{label}", self.shared(argv) if shared else argv, limit, **variables)
            current, lines = None, []
            for line in run.output.splitlines():
                match = re.match(r"\[ (RUN     |      OK| FAILED | SKIPPED) \] ([\w./]+)", line)
                if match is None or match[2] not in tests:  # also of the other processes of a test
                    lines.append(line)
                elif match[1].startswith("RUN"):
                    current, lines = match[2], []
                elif match[2] == current:
                    results[current] = match[1].strip().lower()
                    text[current] = "\n".join(lines)
                    current = None
            if current is not None:
                results[current] = "timeout" if run.timed_out else f"crash {run.status}"
                text[current] = "\n".join(lines)
            before = len(left)
            left = [test for test in left if test not in results]
            if len(left) == before:
                results.update({test: f"not run: {run.end}" for test in left})
                text.update({test: run.output[-400:] for test in left})
                break
        results.update({test: "not reached" for test in tests if test not in results})
        return results, text

    def conformance_run(self, label, shared, limit_s):
        """{test: result}. Groups run beside each other; what failed so, or has to be alone, runs once more alone."""
        program, groups = self.suite()
        if self.tests is not None:
            groups = {group: [t for t in tests if t in self.tests] for group, tests in groups.items()}
            groups = {group: tests for group, tests in groups.items() if tests}
        until = min(self.deadline, time.monotonic() + limit_s)
        begin = time.monotonic()
        results, text = {}, {}
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            largest_first = sorted(groups.values(), key=len, reverse=True)
            for found, said in pool.map(lambda t: self.run_group(label, shared, program, t, until), largest_first):
                results.update(found)
                text.update(said)
        together = round(time.monotonic() - begin, 1)
        again = sorted(t for t, result in results.items()
                       if result not in ("ok", "skipped") or ALONE.search(text.get(t, "")))  # fmt: skip
        self.say("conformance", run=label, together_s=together, to_repeat=len(again))
        for test in again:
            if time.monotonic() < until:
                found, said = self.run_group(label, shared, program, [test], until, TANDEM_TEST_ALONE="1")
                results.update(found)
                text.update(said)
        counts = {}
        for result in results.values():
            counts[result.split()[0]] = counts.get(result.split()[0], 0) + 1
        self.say("conformance", run=label, seconds=round(time.monotonic() - begin, 1), **counts)
        with open(self.out / f"conformance-{label}.json", "w") as file:
            json.dump({t: [results[t], text.get(t, "") if results[t] != "ok" else ""] for t in sorted(results)}, file, indent=0)
        return results

    def conformance(self):
        bare = self.conformance_run("bare", False, 80)
        daemon = self.daemon()
        shared = self.conformance_run("tandem", True, 80)
        self.end_daemon(daemon)
        worse = sorted(t for t in bare if bare[t] == "ok" and shared.get(t) != "ok")
        self.say("conformance", ok=not worse, worse_under_tandem=[[t, shared.get(t)] for t in worse][:60])
        self.say("conformance", failed_bare=[[t, r] for t, r in sorted(bare.items()) if r not in ("ok", "skipped")][:80])

    def same(self, step, alone, run, found, **fields):
        equal = alone is not None and found is not None and alone["digests"] == found["digests"]
        self.say(step, ok=equal, end=run.end, seconds=run.seconds, times=found and found["times"],
                 tail=None if equal else run.output[-400:], **fields)  # fmt: skip

    def oversubscribed(self):
        daemon = self.daemon()
        options = ("--ballast", str(int(self.gib() * 0.6)), "--steps", "60")
        (one, alone), = self.digests("ballast-bare", False, options, ("torch",), 60).values()
        self.say("oversubscribed", run="bare", seconds=one.seconds, times=alone and alone["times"])
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            both = list(pool.map(lambda n: self.digests(f"ballast-{n}", True, options, ("torch",), 100)["torch"], (1, 2)))
        moved = self.moves()
        self.end_daemon(daemon)
        for run, found in both:
            self.same("oversubscribed", alone, run, found)
        larger = [h for h in moved if h["out_bytes"] > 2**32]
        self.say("oversubscribed", moves=len(moved), slow=sum(h["took_s"] > 0.1 and h["out_bytes"] < 2**30 for h in moved),
                 large=[[round(h["out_bytes"] / 1e9, 1), round(h["in_bytes"] / 1e9, 1), round(h["took_s"], 3)] for h in larger][-8:])  # fmt: skip

    def pauses(self):
        daemon = self.daemon()
        ballast = ("--ballast", str(int(self.gib() * 0.6)))
        for steps, every, pause in ((180, 60, 2.5), (96, 8, 0.3)):
            options = (*ballast, "--steps", str(steps), "--every", str(every), "--pause", str(pause))
            (one, alone), = self.digests("pauses-bare", False, options, ("torch",), 60).values()
            begin = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                both = list(pool.map(lambda n: self.digests(f"pauses-{n}", True, options, ("torch",), 100)["torch"], (1, 2)))
            together, serial = time.monotonic() - begin, 2 * one.seconds
            for run, found in both:
                self.same("pauses", alone, run, found)
            done = alone is not None and all(found is not None for _, found in both)
            self.say("pauses", ok=done and together <= 1.05 * serial, pause_s=pause, together_s=round(together, 2),
                     one_after_the_other_s=round(serial, 2), ratio=round(together / serial, 3))  # fmt: skip
        self.say("pauses", large=[[h["reason"], round(h["out_bytes"] / 1e9, 1), round(h["in_bytes"] / 1e9, 1), round(h["took_s"], 3)]
                                  for h in self.moves() if h["out_bytes"] > 2**32][-40:])  # fmt: skip
        self.end_daemon(daemon)

    def notebooks(self):
        daemon = self.daemon()
        argv = [sys.executable, HERE / "notebooks.py", "--tandem", self.tandem, "--gib", f"{self.gib() * 0.6:.2f}"]
        run = self.go("notebooks", [*argv, "--driver"] if self.soft else argv, 110)
        last = [[h["reason"], round(h["out_bytes"] / 1e9, 1), round(h["in_bytes"] / 1e9, 1), round(h["took_s"], 3)]
                for h in self.moves()[-6:]]  # fmt: skip
        self.end_daemon(daemon)
        lines = [line for line in run.output.splitlines() if line.startswith("{")]
        if not lines and "No module named" in run.output:
            self.say("notebooks", ok=None, skipped=run.output.splitlines()[-1])  # no Jupyter here
            return
        found = json.loads(lines[-1]) if lines else {}
        right = found.get("wrong") == ["0", "0"] and found["errors"] == [] and found["interrupted"] == "KeyboardInterrupt"
        self.say("notebooks", ok=right, end=run.end, **found, last_moves=last, tail=None if right else run.output[-600:])

    def suspended(self):
        """A trainer that leaves the card ten times, in the middle of its work."""
        daemon = self.daemon()
        ballast = int(self.gib() * 0.3)
        options = ("--ballast", str(ballast), "--steps", "400")
        (_, alone), = self.digests("suspended-bare", False, options, ("torch",), 60).values()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            trainer = pool.submit(self.digests, "suspended", True, options, ("torch",), 110)
            on_card = lambda: trainer.done() or sum(s["resident_bytes"] for s in self.sessions()) >= ballast * 2**30
            self.wait(on_card, 40)
            number = self.sessions()[0]["id"]
            left, rounds = [], 0
            for _ in range(10):
                told = self.go("suspended", [self.tandem, "suspend", number, "--timeout", "20s"], 25)
                if told.status == 0:
                    left.append(self.status()["charged_bytes"] >> 20)
                back = self.go("suspended", [self.tandem, "resume", number], 25)
                rounds += told.status == 0 and back.status == 0 and self.wait(on_card, 25) and not trainer.done()
            (run, found), = trainer.result().values()
        moved = [round(h["out_bytes"] / 1e9 / h["took_s"], 1) for h in self.moves() if h["out_bytes"] > 2**32]
        self.end_daemon(daemon)
        self.same("suspended", alone, run, found, left_mib=left, gb_per_s=moved[-10:])
        self.say("suspended", ok=rounds == 10, rounds=rounds)

    def seeing(self):
        """What listings and NVML show while a trainer holds 20 GiB, and with a program beside Tandem."""
        daemon = self.daemon()
        argv = [sys.executable, str(HERE / "frameworks.py"), "torch", "--ballast", "20", "--steps", "1500"]
        log = open(self.logs / "seeing-trainer.log", "a")
        trainer = subprocess.Popen(self.shared(argv, "--name", "seen"), env=self.env, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=log, start_new_session=True, text=True)  # fmt: skip
        beside = None
        try:
            trainer.stdout.readline()  # "ready"
            beside = subprocess.Popen([sys.executable, "-c", BESIDE], env=self.env, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, start_new_session=True, text=True)  # fmt: skip
            alone = beside.stdout.readline().strip() == "ready"
            self.wait(lambda: self.status()["foreign_bytes"] >= 4 << 30, 25)  # measured every ten seconds
            status = self.status()
            session = self.sessions()[0]
            for words in (["ps"], ["status"], ["top", "--once"], ["doctor"]):
                self.go("seeing", [self.tandem, *words], 30)
            self.go("seeing", self.shared(["nvidia-smi"], "--memory", "8G"), 30)
            seen = self.go("seeing", self.shared([sys.executable, "-c", NVML], "--memory", "8G"), 30)
            real = self.go("seeing", [sys.executable, "-c", NVML], 30)
        finally:
            for process in (trainer, beside):
                if process is not None:
                    process.kill()
                    process.wait()
            self.end_daemon(daemon)
        gib = 2**30
        resident = session.get("resident_bytes", 0)
        self.say("seeing", ok=alone and 4 * gib <= status["foreign_bytes"] <= 6 * gib and resident >= 20 * gib,
                 foreign_gib=round(status["foreign_bytes"] / gib, 2), resident_gib=round(resident / gib, 2),
                 nvml_within=seen.output.strip()[-200:], nvml_without=real.output.strip()[-200:])  # fmt: skip

    def faults(self):
        """Three trainers beyond the card: the daemon is killed and started anew, then one of them is
        killed. The others' results stay right, and the card is empty at the end."""
        daemon = self.daemon()
        options = ("--ballast", str(int(self.gib() * 0.45)), "--steps", "300")
        (_, alone), = self.digests("faults-bare", False, options, ("torch",), 60).values()
        ended = {}

        def trainer(number):
            ended[number] = self.digests(f"faults-{number}", True, options, ("torch",), 110)["torch"]

        threads = [threading.Thread(target=trainer, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        in_turns = lambda: any(h["in_bytes"] > 2**30 for h in self.moves())
        moved = [self.wait(in_turns, 50)]
        os.kill(daemon.pid, signal.SIGKILL)
        daemon.wait()
        daemon = self.daemon()
        moved.append(self.wait(in_turns, 50))
        sessions = self.sessions()
        if sessions:
            os.kill(sessions[0]["pid"], signal.SIGKILL)
        for thread in threads:
            thread.join()
        killed = 0
        for run, found in ended.values():
            if found is None and run.status in (137, -9):
                killed += 1
            else:
                self.same("faults", alone, run, found)
        status = self.status()
        used = self.go("machine", ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader"], 20).output.strip()
        self.end_daemon(daemon)
        self.say("faults", ok=killed == 1 and status["charged_bytes"] == 0 and all(moved), sessions=len(sessions), killed=killed,
                 moved_before_and_after_the_daemon_died=moved, charged_bytes=status["charged_bytes"], used_at_end=used)  # fmt: skip

    def containers(self):
        if os.geteuid() != 0 or shutil.which("podman") is None:
            self.say("containers", ok=None, skipped="needs root and Podman")
            return
        daemon = self.daemon()
        gib = self.gib()
        self.end_daemon(daemon)  # they have one of their own
        program = [self.build / "bin" / "train", "--memory", f"{int(gib * 1024 * 0.55)}M", "--steps", "40"]
        if not self.soft:
            program = [sys.executable, HERE / "frameworks.py", "torch", "--ballast", int(gib * 0.58), "--steps", "150"]
        argv = [sys.executable, HERE / "containers.py", "--build", self.build, "--memory", f"{int(gib * 1024 * 0.65)}M"]
        run = self.go("containers", [*argv, *(["--soft"] if self.soft else []), "--", *program], 200)
        lines = [line for line in run.output.splitlines() if line.startswith("{")]
        found = json.loads(lines[-1]) if lines else {"failed": run.output[-600:]}
        right = "failed" not in found and found["two_equal"] == [True, True] and all(
            found[f"{kind}_equal"] and found[kind] != [] for kind in ("attached", "bare"))  # fmt: skip
        self.say("containers", ok=right, end=run.end, seconds=run.seconds, **found)

    def benchmarks(self):
        for words in self.bench or (("handover", "--fraction", "0.6", "--rounds", "6"), ("release", "--rounds", "2"),
                      ("overhead", "--rounds", "6"), ("alloc", "--quick")):  # fmt: skip
            argv = [sys.executable, HERE.parent.parent / "bench" / f"{words[0]}.py", "--json", *words[1:]]
            done = self.go(f"bench-{words[0]}", argv, 75, TANDEM_BUILD=str(self.build))
            rows = [line for line in done.output.splitlines() if line.startswith("{")]
            self.say("benchmarks", name=words[0], ok=bool(rows), end=done.end, seconds=done.seconds,
                     rows=[json.loads(row) for row in rows], tail=None if rows else done.output[-400:])  # fmt: skip


def has_gpu(build):
    probe = Run([str(build / "bin" / "tandemd"), "--probe"], {**os.environ, "TANDEM_GPU": "cuda"}, 60)
    return probe.status == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default=os.environ.get("TANDEM_BUILD", "build/release"))
    parser.add_argument("--out", default=os.environ.get("OUT", "build/gpu"))
    parser.add_argument("--bench", nargs="*", help="only these benchmarks, each with its arguments in one word")
    parser.add_argument("--tests", help="only these tests of the suite: a file of names")
    parser.add_argument("--limit", type=float, default=600, help="seconds for all of it (default %(default)s)")
    parser.add_argument("--soft", action="store_true", help="on the software GPU, to try these checks")
    parser.add_argument("step", nargs="*", choices=[[], *STEPS], default=[])
    args = parser.parse_args()
    if not args.soft and not has_gpu(Path(args.build)):
        print("SKIPPED: no NVIDIA GPU answers on this machine, so nothing was checked on one", flush=True)
        return
    check = Check(args.build, args.out, args.limit, args.soft)
    check.tests = set(Path(args.tests).read_text().split()) if args.tests else None
    check.bench = [words.split() for words in args.bench or ()]
    for step in args.step or STEPS:
        begin = time.monotonic()
        try:
            getattr(check, step)()
        except Exception as error:  # one broken step must not cost the others
            check.say(step, ok=False, error=repr(error))
        print(f"-- {step}: {time.monotonic() - begin:.1f} s", flush=True)
    check.scratch.cleanup()
    sys.exit(1 if check.failures else 0)


if __name__ == "__main__":
    main()
