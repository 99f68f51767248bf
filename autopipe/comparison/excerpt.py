"""Two long texts, cut so that what differs stays."""

from typing import Final

from autopipe.report.escape import escape

_AROUND: Final = 12
"""Characters that stay of what is the same before and behind."""
_CUT: Final = "..."


def excerpt(old: str, new: str, room: int) -> tuple[str, str]:
    """Return both in at most so many characters, harmless to a terminal, on one line.

    What both begin and end with is cut first, so a difference is seen wherever it is.
    """
    if max(len(old), len(new)) > room:
        start = _alike(old, new)
        rest = min(len(old), len(new)) - start
        end = min(_alike(old[::-1], new[::-1]), rest)
        old, new = (_middle(text, start, end) for text in (old, new))
    return escape(old, room), escape(new, room)


def _alike(old: str, new: str) -> int:
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(old), len(new)))


def _middle(text: str, start: int, end: int) -> str:
    head, tail = max(start - _AROUND, 0), max(end - _AROUND, 0)
    before = _CUT if head > len(_CUT) else text[:head]
    behind = _CUT if tail > len(_CUT) else text[len(text) - tail :]
    return before + text[head : len(text) - tail] + behind
