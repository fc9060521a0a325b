import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from browser import Browser  # noqa: E402
from machine import Machine, can_be_made  # noqa: E402

# Empty where one process runs all tests.
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")


def pytest_addoption(parser):
    parser.addoption("--pictures", type=Path, help="where to put pictures of the pages and the logs")


@pytest.fixture(scope="session")
def pictures(request, tmp_path_factory):
    """The folder for pictures of the pages."""
    folder = request.config.getoption("--pictures") or tmp_path_factory.mktemp("pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def browser(pictures):
    browser = Browser(pictures / f"browser{WORKER}.log")
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def machine(pictures):
    """A machine set up by the commands of docs/notebooks.md, without the Hub."""
    if not can_be_made():
        pytest.skip("needs root and namespaces of its own, for two users and their folders")
    # Other users reach it, so that it is not in pytest's own folder.
    root = Path(tempfile.mkdtemp(prefix="tandem-hub-"))
    machine = Machine(root)
    try:
        machine.run("tandemd", "--everybody", "--daemonize", "--log", "/var/log/tandemd.log")
        machine.run("tandem", "jupyter", "install", "--prefix", "/usr/local")
        yield machine
    finally:
        machine.close()
        for log in (root / "var/log").glob("*.log"):
            shutil.copy(log, pictures / f"{log.stem}{WORKER}.log")
        shutil.rmtree(root)
