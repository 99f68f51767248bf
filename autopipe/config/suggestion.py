"""Did you mean: the known name that was probably meant."""

import difflib
from collections.abc import Iterable


def find_closest(name: object, known: Iterable[str]) -> str | None:
    """Return the known name most like the given one, whatever its case; None if none is."""
    names = {name.lower(): name for name in known}
    nearest = difflib.get_close_matches(str(name)[:200].lower(), names, n=1)
    return names[nearest[0]] if nearest else None
