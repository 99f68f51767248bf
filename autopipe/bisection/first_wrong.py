"""Find the first wrong call in the comparisons of all calls."""

from collections import defaultdict
from collections.abc import Sequence

from autopipe.bisection.bisection import BisectedCall, Cause


def find_first(
    calls: Sequence[BisectedCall], *, wrong_outputs: bool
) -> tuple[int, Cause] | tuple[None, None]:
    """Return the position of the first wrong call, and its cause.

    Where all outputs of the model are right, a difference from the reference is due to a rewrite
    of the graph, such as a scale folded into the value, and is no error.
    """
    loops = next((at for at, one in enumerate(calls) if one.plain and not one.plain.agrees), None)
    differing = _find_first_differing(calls) if wrong_outputs else None
    if differing is not None and (loops is None or differing < loops):
        return differing, Cause.REFERENCE
    return (None, None) if loops is None else (loops, Cause.LOOPS)


def _find_first_differing(calls: Sequence[BisectedCall]) -> int | None:
    """Return the first call that differs from the reference and whose readers differ, too.

    Of the nearest later calls that can be compared, one has to differ: where all of them agree,
    the call was compared with the value of another place in the graph.
    """
    readers: dict[int, list[int]] = defaultdict(list)
    for at, call in enumerate(calls):
        for source in call.sources:
            readers[source].append(at)
    for at, call in enumerate(calls):
        if call.reference is None or call.reference.agrees:
            continue
        nearest = _list_nearest_verdicts(at, calls, readers)
        if not nearest or not all(nearest):
            return at
    return None


def _list_nearest_verdicts(
    at: int, calls: Sequence[BisectedCall], readers: dict[int, list[int]]
) -> list[bool]:
    """Return for each of the nearest readers with a reference whether it agrees."""
    waiting, visited, verdicts = list(readers[at]), {at}, []
    while waiting:
        reader = waiting.pop()
        if reader in visited:
            continue
        visited.add(reader)
        reference = calls[reader].reference
        if reference is None:
            waiting += readers[reader]
        else:
            verdicts.append(reference.agrees)
    return verdicts
