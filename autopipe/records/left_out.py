"""What a file holds that is not taken over: counted by why, and never by as many reasons as lines.

A reason may quote the file.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from autopipe.config.problem import format_value

_REASONS: Final = 20
_LONGEST: Final = 200


class LeftOut:
    """Counts, and remembers where each reason was met first."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: dict[str, int] = {}

    def add(self, why: str, *, line: int = 0, count: int = 1) -> None:
        """Count something; `line` is its place in the file, if it has one."""
        why = format_value(why, _LONGEST)
        if why not in self._counts and len(self._counts) >= _REASONS:
            why = "other reasons"
        self._counts[why] += count
        self._first.setdefault(why, line)

    def counts(self) -> dict[str, int]:
        """Return how many there were, by why."""
        return dict(self._counts)

    def located(self, source: object) -> Mapping[str, int]:
        """Return the same, with the place of the first of each."""
        return {f"{source}:{self._first[why]}: {why}": n for why, n in self._counts.items()}
