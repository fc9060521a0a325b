import contextlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from slurm_cluster import Slurm  # noqa: E402


@pytest.fixture(scope="module")
def slurm():
    """Three nodes, each with a software GPU of 54 MiB that can be shared, and a daemon."""
    with contextlib.closing(Slurm()) as cluster:
        cluster.start()
        yield cluster


@pytest.fixture(autouse=True)
def nothing_is_left(request):
    """Each test leaves its cluster or its container engine as it found it: no job, no lease."""
    yield
    for name in ("slurm", "podman"):
        if name in request.fixturenames:
            request.getfixturevalue(name).settle()
