"""Which call is the first that is wrong, of what comparing each of them showed."""

from collections import defaultdict
from collections.abc import Sequence

from autopipe.bisection.bisection import BisectedCall, Cause


def find_first(
    calls: Sequence[BisectedCall], *, wrong_outputs: bool
) -> tuple[int, Cause] | tuple[None, None]:
    """Return the position of the first wrong call, and why it is that.

    Where all outputs of the model are right, what differs from the reference is a value that a
    rewrite of the graph has changed, such as one with a scale folded into it.
    """
    loops = next((at for at, one in enumerate(calls) if one.plain and not one.plain.agrees), None)
    left = _find_first_differing(calls) if wrong_outputs else None
    if left is not None and (loops is None or left < loops):
        return left, Cause.REFERENCE
    return (None, None) if loops is None else (loops, Cause.LOOPS)


def _find_first_differing(calls: Sequence[BisectedCall]) -> int | None:
    """Return the first call that differs from the reference and hands that on.

    Of the nearest calls behind it that can be compared, one has to differ, too: where all of them
    agree, it is the value of another place in the graph that it was compared with.
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
    """Return whether the nearest calls behind one that can be compared agree."""
    waiting, seen, found = list(readers[at]), {at}, []
    while waiting:
        reader = waiting.pop()
        if reader in seen:
            continue
        seen.add(reader)
        compared = calls[reader].reference
        if compared is None:
            waiting += readers[reader]
        else:
            found.append(compared.agrees)
    return found
