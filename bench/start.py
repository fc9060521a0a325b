#!/usr/bin/env python3
"""What a job of a cluster engine takes longer to start with a share of a GPU.

For each engine, `true` is run as a job in turn without and with Tandem: `srun` and `srun --gpu-mem`, then
`podman run` and `podman run --device tandem.dev/gpu=0`. `bare_ms` and `tandem_ms` are the medians of the
commands' whole time, `added_ms` that of the differences between neighbours. The engines run on this machine,
as in `./dev test --cluster`; Podman needs root.
"""

import contextlib
import os
import statistics
import sys
import time
from pathlib import Path

from _card import BUILD, Failed, run, say

os.environ.setdefault("TANDEM_BUILD", str(BUILD))
TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS / "cluster"), str(TESTS / "e2e")]


def milliseconds(start):
    """From the start of a process to its end."""
    begin = time.monotonic()
    process = start()
    _, err = process.communicate()
    if process.returncode != 0:
        raise Failed(err)
    return (time.monotonic() - begin) * 1e3


def compare(engine, bare, tandem, rounds):
    say(f"start: {engine}")
    milliseconds(bare), milliseconds(tandem)
    pairs = [(milliseconds(bare), milliseconds(tandem)) for _ in range(rounds)]
    bare_ms, tandem_ms = (statistics.median(times) for times in zip(*pairs))
    added = statistics.median(with_it - without for without, with_it in pairs)
    return {"engine": engine, "bare_ms": round(bare_ms, 1), "tandem_ms": round(tandem_ms, 1),
            "added_ms": round(added, 1), "rounds": rounds}  # fmt: skip


def slurm(rounds):
    from slurm_cluster import Slurm

    cluster = Slurm(nodes=("n1",))
    with contextlib.closing(cluster):
        cluster.start()
        return compare("slurm", lambda: cluster.srun("true"), lambda: cluster.srun("--gpu-mem=10M", "true"), rounds)


def containers(rounds):
    from podman import Podman

    engine = Podman()
    with contextlib.closing(engine):
        command = ["/bin/cat", "/dev/null"]
        return compare("podman", lambda: engine.run(*command), lambda: engine.run(*command, device="0"), rounds)


def measure(args):
    rounds = 3 if args.quick else max(1, args.rounds)
    yield slurm(rounds)
    import pytest
    from podman import unusable

    try:
        if why := unusable():
            pytest.skip(why)
        yield containers(rounds)
    except pytest.skip.Exception as skipped:
        say(f"start: {skipped}")


if __name__ == "__main__":
    run("start", __doc__, measure, rounds=30)
