import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from slurm_cluster import Slurm  # noqa: E402


@pytest.fixture(scope="module")
def slurm():
    """Three nodes, each with a software GPU of 54 MiB that can be shared, and a daemon."""
    cluster = Slurm()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(autouse=True)
def no_job_is_left(request):
    """Each test leaves the cluster as it found it: no job, no lease, every node in use."""
    yield
    if "slurm" in request.fixturenames:
        request.getfixturevalue("slurm").settle()
