"""The benchmarks: that each runs, and says what docs/performance.md explains. How fast anything is is
not asserted here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness import BUILD, PATIENCE_S, SANITIZED

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import _bound  # noqa: E402

# What each row says at least, and whether that is a number above 0.
FIELDS = {
    "gate": ("bare_ns", "tandem_ns", "rounds"),
    "alloc": ("bytes", "threads", "bare_ns", "tandem_ns", "rounds"),
    "overhead": ("bare_s", "tandem_s", "slowdown", "rounds"),
    "release": ("samples", "p50_ms", "p99_ms"),
    "handover": ("set_fraction", "deficit_bytes", "out_bytes", "in_bytes", "out_gbps", "in_gbps",
                 "limit_out_gbps", "limit_in_gbps", "efficiency", "rounds"),
    "gaps": ("step_ms", "gap_ms", "slowdown", "rounds", "passes", "steps"),
    "makespan": ("duty", "phase_s", "jobs", "serial_s", "shared_s", "speedup", "bound", "ideal"),
}  # fmt: skip
# What may be 0, negative or null.
OTHERS = {
    "gate": ("added_ns", "added_instructions", "spread"),
    "overhead": ("program", "launches_per_second"),
    "release": ("fits", "bus_ms", "floor_p99_ms"),
    "gaps": ("switch_ms", "handovers_per_minute", "spread"),
    "makespan": ("turn_s",),
}
ROWS = {"gate": 1, "alloc": 21, "overhead": 4, "release": 2, "handover": 1, "gaps": 1, "makespan": 1}


def start(name, *arguments):
    return subprocess.Popen(
        [sys.executable, str(BENCH / f"{name}.py"), *arguments], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.skipif(SANITIZED, reason="what the benchmarks run is not built there")
@pytest.mark.parametrize("name", FIELDS)
def test_a_quick_run_says_what_is_promised(name):
    bench = start(name, "--quick", "--json")
    out, err = bench.communicate(timeout=PATIENCE_S)
    assert bench.returncode == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) == ROWS[name]
    for row in rows:
        assert all(row[field] > 0 for field in FIELDS[name]), row
        assert all(field in row for field in OTHERS.get(name, ())), row


@pytest.mark.skipif(SANITIZED, reason="what the benchmarks run is not built there")
def test_a_benchmark_can_be_interrupted():
    bench = start("makespan")
    try:
        while "one after the other" not in bench.stderr.readline():
            assert bench.poll() is None
        bench.send_signal(2)
        out, err = bench.communicate(timeout=PATIENCE_S)
    finally:
        bench.kill()
    assert (bench.returncode, out, err) == (130, "", "")


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


def test_the_bound_without_switches_is_the_busier_resource():
    # Both pause while the other works: nothing is lost but the last pause.
    assert _bound.makespan(10, 1, 1, 0) == pytest.approx(10 * 2 + 1)
    # The card is never free.
    assert _bound.makespan(10, 9, 1, 0) == pytest.approx(2 * 10 * 9 + 1)
