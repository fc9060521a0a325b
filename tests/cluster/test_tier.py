"""The tier itself: what it must not overlook."""

import os
import subprocess
import sys
from pathlib import Path

from conftest import processes

FOLDER = Path(__file__).parent


def run(*words, **variables):
    """Runs pytest on the tier where there is no Podman: exit status, and what it prints."""
    ours = ("TANDEM_TEST_NO_SKIPS", "PATH")
    env = {name: value for name, value in os.environ.items() if name not in ours} | {"PATH": "/nowhere", **variables}
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *words]
    ran = subprocess.run(words, env=env, cwd=FOLDER, capture_output=True, text=True, timeout=300)
    return ran.returncode, ran.stdout


def test_a_skip_may_be_a_failure():
    words = ["test_containers.py", "-k", "musl"]
    for variables, status in [({}, 0), ({"TANDEM_TEST_NO_SKIPS": "1"}, 1)]:
        ended, said = run(*words, **variables)
        assert ended == status, said
        assert "no containers here: needs" in said
        assert ("1 error" in said, "1 skipped" in said) == (status == 1, status == 0)


def test_a_process_of_this_session_is_seen():
    with subprocess.Popen(["sleep", "1000"]) as started:
        assert processes()[started.pid] == "sleep 1000 "
        started.kill()
    assert started.pid not in processes()
