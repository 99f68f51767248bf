"""The error that all walls raise."""

from autopipe.errors import StageError


class ForeignCode(StageError):  # noqa: N818 - says what was found
    """The code does something that no pass of ours or TVM's put there. None of it was run."""
