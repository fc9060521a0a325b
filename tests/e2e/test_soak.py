"""The soak (tests/soak) itself, for a moment; a failure prints the seed."""

import json
import sys
from pathlib import Path

from harness import finish

SOAK = Path(__file__).resolve().parent.parent / "soak" / "soak.py"


def test_workers_in_torment_end_right(make_card):
    card = make_card()
    argv = [sys.executable, SOAK, "0.03", "--workers", "5", "--rate", "8"]
    summary = json.loads(finish(card.spawn(argv)))
    assert summary["problems"] == [] and summary["wrong_bytes"] == 0
    assert summary["sessions"] >= 5 and summary["verified_bytes"] > 0
