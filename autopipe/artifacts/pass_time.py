"""The time of a compiler pass, as it is measured, passed between processes and reported."""

from typing import NamedTuple


class PassTime(NamedTuple):
    """How long a pass of the compiler took. In JSON it is a list of these three."""

    name: str
    runs: int
    seconds: float
    """Of all runs together."""
