"""`tandem trace` as chrome://tracing reads it: by the importer of Chromium's trace viewer."""

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from harness import Card, train

HERE = Path(__file__).resolve().parent


@pytest.fixture
def card(tmp_path):
    card = Card(tmp_path)
    yield card
    card.close()


def test_chromes_trace_viewer_shows_every_event(card, tmp_path):
    card.start_daemon()
    runs = [card.shared(train("150M", 40), "--name", name) for name in ("film", "mnist")]
    for run in runs:
        assert run.wait(timeout=120) == 0
    file = tmp_path / "trace.json"
    card.tandem("trace", "--last", "1h", "-o", str(file))
    events = json.loads(file.read_text())["traceEvents"]
    imported = json.loads(
        subprocess.run(["node", HERE / "trace_importer.js", file], check=True, capture_output=True, timeout=60).stdout
    )
    assert imported["warnings"] == []
    (gpu,) = imported["processes"]
    assert gpu["name"].startswith("gpu0 ")
    rows = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    slices = Counter(rows[e["tid"]] for e in events if e["ph"] == "X")
    assert {name: count for name, count in gpu["threads"].items() if count} == slices
    for run in ("film", "mnist"):
        assert any(name.startswith(f"{run} (") for name in slices)
    series = {name for e in events if e["ph"] == "C" for name in e["args"]}
    assert gpu["counters"] and series == {name for names in gpu["counters"].values() for name in names}
    assert not any("undefined" in name for name in gpu["counters"])
