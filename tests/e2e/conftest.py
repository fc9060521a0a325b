import signal

import pytest

import harness

# A test run in the background inherits these as ignored, and a program that does cannot trap them.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


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
