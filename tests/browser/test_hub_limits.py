"""What the configuration that `tandem jupyter hub` prints allows its users."""

import lesson
import pytest
from browser import PATIENCE_S
from harness import wait_until
from lesson import COUNT, FOUND, SETUP, TAKE


@pytest.fixture
def users(machine, browser):
    """anna may have 100 MiB, and ben more; kernels end that idle for longer than the pages take to open."""
    changes = {"of_user = {}": 'of_user = {"ben": "170M"}'}
    with lesson.two_users(machine, browser, "100M", "60s", changes) as pages:
        yield pages


def test_memory_is_limited_by_user_and_idle_kernels_end(machine, users, pictures):
    anna, ben = users
    lesson.run_silent(anna, SETUP)
    assert "cuMemAlloc_v2: error 2" in anna.run(TAKE)  # out of memory
    lesson.take_memory(ben)
    with lesson.held_by(machine, ben):  # a kernel that works is not idle
        wait_until(lambda: machine.session("anna") is None, None, "anna's kernel ends", PATIENCE_S)
        anna.screenshot(pictures / "idle-page.png")
    assert FOUND in ben.run(COUNT)
