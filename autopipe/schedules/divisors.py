"""Divisors of an extent: the lengths of tiles that cut an axis into equal parts."""


def divisors(extent: int, most: int) -> list[int]:
    """Return the divisors of an extent up to `most`, at least 1.

    Example: those of 12 up to 5 are [1, 2, 3, 4].
    """
    return [d for d in range(1, min(extent, max(1, most)) + 1) if extent % d == 0]
