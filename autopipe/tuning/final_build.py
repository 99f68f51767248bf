"""The model of the finals is built, and its finalists are compiled as far as there is time.

First comes what can decide anything: of each task, the heaviest first, the two of whom one holds
the place. Then who came third, and so on. A task whose two were not compiled keeps who holds its
place, and runs in the model as that was built.

Example: A takes 60 % of the time and B 40 %, with three finalists each. Compiled are A0, A1, B0,
B1, A2, B2. If the time ends behind B0, A is played with two, and B is not.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Final

from autopipe.measure.in_model import Place
from autopipe.tuning.final_models import Models, TooLate
from autopipe.tuning.finalists import Finalists
from autopipe.tuning.pace import Pace

FEWEST: Final = 9
"""Rounds from which something is decided: 8 would do for the sign test."""

_SURE_OF: Final = 3
"""Ranks that are compiled as long as there is time; others take half of the finals at most."""

_PART: Final = 0.5
"""Part of the finals that is left when others are compiled no more."""

_PROCESS: Final = 1.5
"""Seconds of one process that loads two models and runs them, with what disturbs it."""

_KEPT: Final = 0.5
"""Part of the time left after the build that is kept for packages that run in turn, at most."""

_ENOUGH: Final = 0.7
"""Part of the time that they need without which they are not begun."""

_PLAYED: Final = 5
"""Places in all of the fewest rounds: two in a second heat, two that run as a whole, and as much as
one in a first heat."""

Compiled = Mapping[str, int]
"""How many of its finalists can run in the model, by workload: none, or two and more."""


def build(
    models: Models,
    entered: Sequence[Finalists],
    pace: Pace,
    place: Place,
    run: Callable[[], object],
) -> Compiled:
    """Build the model with who holds each `place`, and compile finalists; return how many.

    `run` runs the model a little and tells `pace` what a round takes. Raises TooLate where nobody
    could be challenged.
    """
    begun = monotonic()
    models.build(place)
    pace.build = monotonic() - begun
    run()
    packages = pace.build + FEWEST * _PROCESS
    kept = min(packages, _KEPT * pace.left())
    pace.kept = kept if kept >= _ENOUGH * packages else 0.0
    playing = _PLAYED * FEWEST * pace.each
    shortest = _PART * (pace.left() + pace.kept)
    found = {entry.state.task.workload: 0 for entry in entered}
    longest = 0.0
    for rank, entry in _in_order(entered):
        left = pace.left()
        short = rank >= _SURE_OF and left + pace.kept < shortest
        if short or left - playing < longest:
            break
        begun = monotonic()
        models.add(rank, entry.state.task.functions)
        found[entry.state.task.workload] = rank + 1
        longest = max(longest, monotonic() - begun)
    usable = {name: count if count > 1 else 0 for name, count in found.items()}
    if any(len(entry.proposals) > 1 for entry in entered) and not any(usable.values()):
        raise TooLate
    return usable


def _in_order(entered: Sequence[Finalists]) -> Iterator[tuple[int, Finalists]]:
    """Yield ranks and tasks in the order in which they are compiled."""
    some = [entry for entry in entered if len(entry.proposals) > 1]
    some.sort(key=lambda entry: -entry.state.task.calls * entry.state.best)
    most = max((len(entry.proposals) for entry in some), default=0)
    yield from ((rank, entry) for entry in some for rank in (0, 1))
    for rank in range(2, most):
        yield from ((rank, entry) for entry in some if len(entry.proposals) > rank)
