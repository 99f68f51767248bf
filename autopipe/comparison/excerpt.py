"""Shorten two long texts so that their difference stays visible."""

from typing import Final

from autopipe.report.escape import escape_text

_AROUND: Final = 12
"""Characters of the common prefix and suffix that are kept."""
_CUT: Final = "..."


def cut_alike(old: str, new: str, room: int) -> tuple[str, str]:
    """Shorten both texts to `room` characters on one line, escaped for a terminal.

    The common prefix and suffix are cut first, so that the difference stays visible.
    """
    if max(len(old), len(new)) > room:
        start = _count_common_prefix(old, new)
        rest = min(len(old), len(new)) - start
        end = min(_count_common_prefix(old[::-1], new[::-1]), rest)
        old, new = (_cut_ends(text, start, end) for text in (old, new))
    return escape_text(old, room), escape_text(new, room)


def _count_common_prefix(old: str, new: str) -> int:
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(old), len(new)))


def _cut_ends(text: str, start: int, end: int) -> str:
    head, tail = max(start - _AROUND, 0), max(end - _AROUND, 0)
    before = _CUT if head > len(_CUT) else text[:head]
    behind = _CUT if tail > len(_CUT) else text[len(text) - tail :]
    return before + text[head : len(text) - tail] + behind
