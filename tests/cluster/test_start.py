"""The benchmark of starts: that it runs, and says what docs/performance.md explains."""

import json
import os
import subprocess
import sys

from harness import BUILD, SOURCE


def test_each_engine_has_a_row():
    words = [sys.executable, SOURCE / "bench" / "start.py", "--json", "--quick"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=300, env={**os.environ, "TANDEM_BUILD": str(BUILD)})
    assert ran.returncode == 0, ran.stderr
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    expected = ["slurm"] if "start: needs" in ran.stderr or "no container here" in ran.stderr else ["slurm", "podman"]
    assert [row["engine"] for row in rows] == expected
    for row in rows:
        assert min(row["bare_ms"], row["tandem_ms"]) > 0 and row["rounds"] == 3
