"""Suggest the closest known name for a misspelled one."""

from collections.abc import Iterable


def find_closest(name: object, candidates: Iterable[str]) -> str | None:
    """Find the known name closest to the given one, ignoring case; None if none is similar."""
    import difflib  # only for mistakes

    names = {name.lower(): name for name in candidates}
    nearest = difflib.get_close_matches(str(name)[:200].lower(), names, n=1)
    return names[nearest[0]] if nearest else None
