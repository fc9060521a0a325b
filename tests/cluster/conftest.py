import contextlib
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from harness import wait_until  # noqa: E402
from slurm_cluster import Slurm  # noqa: E402

# What this session starts inherits it: the daemons, and what they start.
os.environ["CLUSTER_TEST_SESSION"] = str(os.getpid())
MAY_SKIP = "TANDEM_TEST_NO_SKIPS" not in os.environ


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


def processes():
    """The command lines of the processes that this session has started, by their numbers."""
    mark = f"CLUSTER_TEST_SESSION={os.getpid()}".encode()
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended, or is not ours
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left():
    """All clusters and engines are closed by then."""
    yield
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not processes(), None, "all processes end", patience=30)
    assert processes() == {}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    _no_skip((yield).get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report():
    _no_skip((yield).get_result())


def _no_skip(report):
    """A tier that shows nothing must not look like one that has passed."""
    if report.skipped and not MAY_SKIP:
        report.outcome = "failed"
        report.longrepr = f"skipped, which TANDEM_TEST_NO_SKIPS forbids: {report.longrepr[2]}"
