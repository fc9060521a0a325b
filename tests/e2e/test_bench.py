"""The benchmarks: that each runs, and says what docs/performance.md explains. How fast anything is is
not asserted here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import BUILD, PATIENCE_S, SANITIZED, wait_until

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import _bound  # noqa: E402

# What each row says at least, and whether that is a number above 0.
FIELDS = {
    "gate": ("bare_ns", "tandem_ns", "rounds"),
    "alloc": ("bytes", "threads", "bare_ns", "tandem_ns", "rounds"),
    "overhead": ("bare_s", "tandem_s", "slowdown", "rounds"),
    "release": ("samples", "p50_ms", "p99_ms", "rounds"),
    "handover": ("set_fraction", "deficit_bytes", "out_bytes", "in_bytes", "out_gbps", "in_gbps",
                 "limit_out_gbps", "limit_in_gbps", "efficiency", "rounds", "turn_ms", "pass_ms"),
    "fairness": ("case", "asked", "got", "share", "jain", "rounds"),
    "gaps": ("step_ms", "gap_ms", "slowdown", "rounds", "passes", "steps"),
    "harvest": ("rules", "production_p99_ratio", "production_work_p99_ratio", "rounds"),
    "interactive": ("users", "policy", "bursts", "mean_wait_s", "p99_wait_s", "closed_form_mean_s", "work_s",
                    "switch_ms", "switches_per_burst"),
    "cell": ("bare_ms", "gpu_ms", "remote_100mb_ms", "new_100mb_ms", "channel_100mb_ms", "unchanged_100mb_ms",
             "rounds"),
    "classroom": ("users", "cells", "policy", "mean_wait_s", "p99_wait_s", "plan_mean_s", "plan_p99_s",
                  "sim_mean_s", "sim_p99_s", "exclusive_mean_s", "alone_bare_ms", "alone_gpu_ms",
                  "p99_bound_s", "capacity_cells", "plan_users", "sim_users", "exclusive_users"),
    "observe": ("sessions", "gpus", "daemon_cpu_share_with", "top_cpu_share", "scrape_ms", "scrape_max_ms",
                "events_per_second", "db_bytes_per_day", "rounds", "seconds"),
    "makespan": ("duty", "phase_s", "jobs", "set_fraction", "serial_s", "shared_s", "speedup", "bound",
                 "ideal", "rounds"),
}  # fmt: skip
# What may be 0, negative or null.
OTHERS = {
    "gate": ("added_ns", "added_instructions", "spread"),
    "overhead": ("program", "launches_per_second"),
    "release": ("fits", "bus_ms", "floor_p99_ms", "spread"),
    "fairness": ("worst", "spread"),
    "gaps": ("switch_ms", "handovers_per_minute", "spread"),
    "harvest": ("device_priority", "gap_share", "production_loss", "spread"),
    "interactive": ("model_mean_s", "model_p99_s", "seed", "scale"),
    "cell": ("added_ms", "remote_small_ms"),
    "classroom": ("queued", "wrong_results", "seed", "scale"),
    "observe": ("daemon_cpu_share", "daemon_cpu_share_without", "recorder_cpu_share"),
    "makespan": ("turn_s", "spread"),
}
ROWS = {"gate": 1, "alloc": 24, "overhead": 4, "release": 2, "handover": 1, "gaps": 1, "makespan": 3,
        "fairness": 1, "harvest": 1, "interactive": 1, "cell": 1, "classroom": 1, "observe": 1}  # fmt: skip


def positive(value):
    if isinstance(value, list):
        return len(value) > 0 and all(map(positive, value))
    return bool(value) if isinstance(value, str) else value > 0


def start(name, *arguments, **variables):
    return subprocess.Popen(
        [sys.executable, str(BENCH / f"{name}.py"), *arguments], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **variables},
    )  # fmt: skip


def processes_in(folder):
    """The names of those whose temporary files are there."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.add((process / "comm").read_text().strip())
        except OSError:  # it ended, or is not ours
            continue
    return found


@pytest.mark.skipif(SANITIZED, reason="what the benchmarks run is not built there")
@pytest.mark.parametrize("name", FIELDS)
def test_a_quick_run_says_what_is_promised(name):
    bench = start(name, "--quick", "--json")
    out, err = bench.communicate(timeout=PATIENCE_S)
    assert bench.returncode == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) == ROWS[name]
    for row in rows:
        assert all(positive(row[field]) for field in FIELDS[name]), row
        assert all(field in row for field in OTHERS.get(name, ())), row


@pytest.mark.skipif(SANITIZED, reason="what the benchmarks run is not built there")
def test_the_simulated_cluster_says_what_is_promised():
    words = [BUILD / "bin" / "bench_scale", "--nodes", "2", "--gpus", "2", "--jobs", "20", "--hours", "0.1", "--json"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ran.returncode == 0, ran.stderr
    rows = {row["way"]: row for row in map(json.loads, ran.stdout.splitlines())}
    assert list(rows) == ["whole", "fractions", "replicas", "tandem", "tandem-spread"]
    results = BENCH / "results" / "simulated-2026-11-28-scale.jsonl"
    for kept in map(json.loads, results.read_text().splitlines()):
        row = rows[kept["way"]]
        assert row.keys() == kept.keys()
        assert positive([row[key] for key in ("work_s", "gpu_occupied_s", "utilisation", "run_over_alone_mean", "events")])
        assert row["gpu_busy_s"] == pytest.approx(row["work_s"])  # all jobs have ended
        assert min(row[key] for key in ("wait_mean_s", "wait_p99_s", "failures", "stranded_mean")) >= 0


@pytest.mark.skipif(SANITIZED, reason="what the benchmarks run is not built there")
def test_an_interrupted_benchmark_leaves_nothing_behind(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("bench")  # a short name: the socket's path has 107 characters at most
    bench = start("makespan", TMPDIR=str(tmp_path))
    try:
        while "one after the other" not in bench.stderr.readline():
            assert bench.poll() is None
        wait_until(lambda: {"tandemd", "bench_worker"} <= processes_in(tmp_path), bench, "a worker")
        bench.send_signal(2)
        out, err = bench.communicate(timeout=PATIENCE_S)
    finally:
        bench.kill()
    assert (bench.returncode, out, err) == (130, "", "")
    assert processes_in(tmp_path) == set()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(SANITIZED, reason="what the benchmarks run is not built there")
@pytest.mark.parametrize("name", ["gaps", "harvest", "interactive", "makespan"])
def test_a_benchmark_says_that_it_is_not_for_a_card(name):
    bench = start(name, "--quick", "--json", TANDEM_GPU="cuda")
    out, err = bench.communicate(timeout=PATIENCE_S)
    assert (bench.returncode, out) == (1, "")
    assert f"{name}: not with TANDEM_GPU=cuda: " in err


# Of two jobs of 20 phases: the share of work on the card, seconds of a phase there, how long turns
# are, and what sharing gains by a calculation that was made before there was this one. A change of
# holder takes 2.31 s.
@pytest.mark.parametrize("duty, phase, quantum, expected", [
    (0.5, 30, None, 1.82),
    (0.5, 100, None, 1.91),
    (0.9, 30, None, 1.03),
    (0.9, 100, None, 1.08),
    (0.5, 30, 5, 1.09),
    (0.9, 30, 5, 0.76),
])  # fmt: skip
def test_the_bound_of_two_jobs(duty, phase, quantum, expected):
    pause = phase * (1 - duty) / duty
    assert _bound.speedup(20, phase, pause, 2.31, quantum) == pytest.approx(expected, abs=0.01)


def test_the_bound_where_turns_outlast_the_phases():
    # Two phases of 10 s, pauses of 10 s, a switch of 1 s, so turns of 20 s. A works to 10 and stays for
    # two switches, as nothing is known yet; B works from 13 to 23 and stays for one, as A is known to
    # pause; A works from 25 to 35, and as its pauses are known to be long too, B comes after a 64th of a
    # switch: from 36 to 46, and pauses to 56. One after the other they take 80.
    assert _bound.makespan(2, 10, 10, 1, 20) == pytest.approx(56 + 1 / 64)
    assert _bound.speedup(2, 10, 10, 1, 20) == pytest.approx(80 / (56 + 1 / 64))


def test_the_bound_where_phases_outlast_the_turns():
    # One phase of 30 s: A works to 20, B from 21 to 41, A again from 42 to 52 and stays for two
    # switches, B from 55 to 65, and pauses to 75. One after the other they take 80.
    assert _bound.speedup(1, 30, 10, 1, 20) == pytest.approx(80 / 75)


def test_the_bound_without_switches_is_the_busier_resource():
    # Both pause while the other works: nothing is lost but the last pause.
    assert _bound.makespan(10, 1, 1, 0) == pytest.approx(10 * 2 + 1)
    # The card is never free.
    assert _bound.makespan(10, 9, 1, 0) == pytest.approx(2 * 10 * 9 + 1)
