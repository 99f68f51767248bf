"""What all walls raise."""

from autopipe.errors import StageError


class ForeignCode(StageError):  # noqa: N818 - says what was found
    """Code does what neither our passes nor TVM's put there; nothing of it was run."""
