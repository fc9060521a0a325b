import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from card_fixtures import card, make_card  # noqa: E402, F401
from notebook import Notebook  # noqa: E402


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
