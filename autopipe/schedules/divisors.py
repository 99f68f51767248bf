"""Divisors: how an axis can be cut into equal tiles."""


def divisors(extent: int, most: int) -> list[int]:
    """Return the divisors of an extent, at most `most`; 1 is always one."""
    return [d for d in range(1, min(extent, max(1, most)) + 1) if extent % d == 0]
