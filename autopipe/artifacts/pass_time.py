"""The time of a compiler pass, as it is measured, passed between processes and reported."""

from typing import NamedTuple


class PassTime(NamedTuple):
    """Name, runs and seconds of a compiler pass, in JSON a list of these three."""

    name: str
    runs: int
    seconds: float
    """Of all runs together."""
