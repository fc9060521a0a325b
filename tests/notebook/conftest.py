import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

import harness  # noqa: E402
from notebook import Notebook  # noqa: E402


@pytest.fixture
def make_card(tmp_path_factory):
    """Makes cards: make_card(vram="256M", context="8M", bus="8GB/s", devices="gpu0")."""
    cards = []

    def make(**options):
        cards.append(harness.Card(tmp_path_factory.mktemp("card"), **options))
        return cards[-1]

    yield make
    for card in cards:
        card.close()


@pytest.fixture
def card(make_card):
    """A card of 256 MiB with its daemon running."""
    card = make_card()
    card.start_daemon()
    return card


@pytest.fixture
def open_notebook(card):
    """Opens notebooks on `card`: open_notebook("anna")."""
    opened = []

    def open_one(name, **options):
        opened.append(Notebook(card, name, **options))
        return opened[-1]

    yield open_one
    for notebook in opened:
        notebook.close()
