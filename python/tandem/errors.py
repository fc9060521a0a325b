"""What can go wrong. Each error says what to do about it."""


class Error(RuntimeError):
    """Base of all errors of this package."""


class InvalidUse(Error, ValueError):
    """An argument is out of range, or a call is out of place."""


class WaitTimeout(Error):
    """The GPU did not come free within the time to wait."""


class TimeLimitExceeded(Error):
    """The block ran for longer than its limit."""


class Cancelled(Error):
    """The wait was cancelled."""


class TooLarge(Error):
    """More memory was asked for than the run may have."""


class NoDevice(Error):
    """There is no such GPU."""


class NoAnswer(Error):
    """tandemd does not answer."""


class NotShared(Error):
    """The program does not run under Tandem."""
