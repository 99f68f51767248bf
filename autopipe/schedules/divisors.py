"""Lengths of tiles and vectors: divisors of an extent, and powers of two."""


def floor_power(number: int) -> int:
    """Return the largest power of two up to a number, which is 1 at least."""
    return 1 << (number.bit_length() - 1)


def list_divisors(extent: int, most: int) -> list[int]:
    """Return the divisors of an extent up to `most`, at least 1.

    Example: those of 12 up to 5 are [1, 2, 3, 4].
    """
    return [d for d in range(1, min(extent, max(1, most)) + 1) if extent % d == 0]
