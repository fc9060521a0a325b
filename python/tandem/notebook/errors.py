"""The errors of the notebook commands."""


class BadInput(Exception):
    """A command cannot do what it was asked for, and has done nothing. The text says what to do."""


class SaveFailed(Exception):
    """The output notebook could not be saved. The file holds its earlier content."""
