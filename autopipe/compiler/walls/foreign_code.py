"""The error of code inspection."""

from autopipe.errors import StageError


class ForeignCode(StageError):  # noqa: N818 - the name states the fault
    """The code does something that no pass of ours or TVM's generates. None of it was run."""
