#!/usr/bin/env python3
"""Short pauses must not cost the card: two trainers that do not fit together, each with steps of
about 100 ms and pauses of 5 ms, on a bus so slow that a switch takes far longer than a pause.

Whoever gave the card away in every pause would switch ten times a second. `slowdown` is the time
both take together over twice the time that one takes alone, in paired rounds; below 1 each used the
other's pauses.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

BUILD = Path(os.environ.get("TANDEM_BUILD", "build/release")).resolve()
TANDEM = str(BUILD / "bin" / "tandem")
TRAIN = str(BUILD / "bin" / "train")
GAP_MS, STEP_MS = 5, 100
CARD = {
    # After the reserve for contexts 94 MiB can be handed out, so a switch moves most of a set.
    "TANDEM_SOFT_VRAM": "128M",
    "TANDEM_SOFT_CONTEXT": "8M",
    "TANDEM_SOFT_PCIE": "400MB/s",
}
MEMORY = "64M"
PATIENCE_S = 600


def environment(folder):
    env = {k: v for k, v in os.environ.items() if not k.startswith("TANDEM_")}
    for name, variable in (("run", "TANDEM_RUNTIME_DIR"), ("soft", "TANDEM_SOFT_DIR")):
        (folder / name).mkdir(mode=0o700)
        env[variable] = str(folder / name)
    return {**env, "TANDEM_GPU": "soft", **CARD}


def ask(env, what):
    answer = subprocess.run([TANDEM, what, "--json"], env=env, capture_output=True, check=True)
    return json.loads(answer.stdout)


def train(env, count, steps, passes):
    """Runs `count` trainers at once: what each reports, and the seconds until the last has ended."""
    argv = [TANDEM, "run", "--", TRAIN, "--json", "--memory", MEMORY, "--steps", str(steps)]
    argv += ["--passes", str(passes), "--pause-ms", str(GAP_MS)]
    begin = time.monotonic()
    jobs = [subprocess.Popen(argv, env=env, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        outputs = [job.communicate(timeout=PATIENCE_S)[0] for job in jobs]
    finally:
        for job in jobs:
            job.kill()
    seconds = time.monotonic() - begin
    if any(job.returncode != 0 for job in jobs):
        raise SystemExit("gaps: a trainer failed")
    return [json.loads(output) for output in outputs], seconds


def measure(env, rounds, steps):
    (first,), _ = train(env, 1, 10, 1)  # also starts the daemon
    passes = max(1, round(STEP_MS / first["step_ms"]))
    step_ms, slowdowns, handovers, shared_seconds, checksums = [], [], 0, 0.0, set()
    for _ in range(rounds):
        (alone,), solo = train(env, 1, steps, passes)
        before = ask(env, "status")["gpus"][0]["handovers"]
        both, shared = train(env, 2, steps, passes)
        handovers += ask(env, "status")["gpus"][0]["handovers"] - before
        shared_seconds += shared
        slowdowns.append(shared / (2 * solo))
        step_ms.append(alone["step_ms"])
        checksums.update(report["checksum"] for report in (alone, *both))
    if len(checksums) != 1:
        raise SystemExit("gaps: the trainers did not all end with the same memory")
    switches = [
        (h["running_at_ns"] - h["revoked_at_ns"]) / 1e6
        for h in ask(env, "handovers")["handovers"]
        if h["in_bytes"] > 0 and 0 < h["revoked_at_ns"] < h["running_at_ns"]
    ]
    slowdown = statistics.median(slowdowns)
    return {
        "step_ms": round(statistics.median(step_ms), 3),
        "gap_ms": GAP_MS,
        "switch_ms": round(statistics.median(switches), 3) if switches else None,
        "slowdown": round(slowdown, 4),
        "handovers_per_minute": round(handovers * 60 / shared_seconds, 2),
        "rounds": rounds,
        "spread": round((max(slowdowns) - min(slowdowns)) / slowdown, 4),
        "passes": passes,
        "steps": steps,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60, help="of each trainer, in each round")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tandem-gaps-") as folder:
        env = environment(Path(folder))
        try:
            result = measure(env, max(1, args.rounds), max(1, args.steps))
        finally:
            pid = ask(env, "status")["pid"]
            if pid is not None:
                os.kill(pid, signal.SIGTERM)
    if args.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:22}{value}")


if __name__ == "__main__":
    main()
