"""Cards with daemons, as pytest fixtures; for the end-to-end and the notebook tests."""

import pytest

import harness


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
