"""A victim's program at a card that a stranger attacks; no test may harm it."""

import pytest

from harness import finish
from users import Scene


@pytest.fixture(scope="module")
def scene():
    scene = Scene()
    yield scene
    try:
        scene.assert_unharmed()
        finish(scene.program.process)  # the end of its input ends it
        assert scene.card.gpu()["charged_bytes"] == 0
    finally:
        scene.close()


@pytest.fixture(autouse=True)
def unharmed(scene):
    yield
    scene.assert_unharmed()
