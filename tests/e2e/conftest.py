from card_fixtures import card, make_card  # noqa: F401
from scene_fixtures import scene  # noqa: F401
