"""The errors of the notebook commands."""

from ..errors import Error


class BadInput(Error):
    """A command cannot do what it was asked for, and has done nothing. The text says what to do."""


class SaveFailed(Error):
    """The output notebook could not be saved. The file holds its earlier content."""
