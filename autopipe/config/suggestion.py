"""Suggest the closest known name for a misspelled one."""

from collections.abc import Iterable

from autopipe.config.problem import format_value


def find_closest(name: object, candidates: Iterable[str]) -> str | None:
    """Find the known name closest to the given one, ignoring case; None if none is similar."""
    import difflib  # only for mistakes

    names = {name.lower(): name for name in candidates}
    nearest = difflib.get_close_matches(str(name)[:200].lower(), names, n=1)
    return names[nearest[0]] if nearest else None


def suggest_name(name: object, known_names: Iterable[str], otherwise: str = "") -> str:
    """Return the end of a sentence on an unknown name: the closest known one, or `otherwise`."""
    if suggestion := find_closest(name, known_names):
        return f"; did you mean `{format_value(suggestion)}`?"
    return otherwise and f"; {otherwise}"
