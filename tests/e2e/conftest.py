import signal

from card_fixtures import card, make_card  # noqa: F401

# A test run in the background inherits these as ignored, and a program that does cannot trap them.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
