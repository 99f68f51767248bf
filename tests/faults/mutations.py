"""Seeded damage: bytes flipped, cut, repeated, moved, and replaced by those of another file."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from signal import ITIMER_REAL, SIGALRM, setitimer, signal
from types import FrameType

Data = bytes | bytearray


def mutants(seeds: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """Yield damaged copies of the seeds, the same ones for the same `seed`."""
    chance = random.Random(seed)
    for _ in range(count):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.choice([1, 1, 2, 4])):
            chance.choice(_WAYS)(data, chance, chance.choice(seeds))
        yield bytes(data)


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in here after so many seconds."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal(SIGALRM, ring)
    setitimer(ITIMER_REAL, seconds)
    try:
        yield
    finally:
        setitimer(ITIMER_REAL, 0)
        signal(SIGALRM, before)


def _part(data: Data, chance: random.Random) -> slice:
    start = chance.randrange(len(data) + 1)
    return slice(start, start + chance.choice([1, 2, 8, 64]))


def _flip(data: bytearray, chance: random.Random, _other: bytes) -> None:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _cut(data: bytearray, chance: random.Random, _other: bytes) -> None:
    del data[_part(data, chance)]


def _end(data: bytearray, chance: random.Random, _other: bytes) -> None:
    del data[chance.randrange(len(data) + 1) :]


def _repeat(data: bytearray, chance: random.Random, _other: bytes) -> None:
    part = _part(data, chance)
    data[part.start : part.start] = data[part] * chance.choice([1, 2, 50])


def _fill(data: bytearray, chance: random.Random, _other: bytes) -> None:
    part = _part(data, chance)
    data[part] = bytes([chance.choice([0, 1, 0x7F, 0x80, 0xFF])]) * len(data[part])


def _splice(data: bytearray, chance: random.Random, other: bytes) -> None:
    data[_part(data, chance)] = other[_part(other, chance)]


_WAYS: tuple[Callable[[bytearray, random.Random, bytes], None], ...] = (
    _flip, _flip, _cut, _end, _repeat, _fill, _splice,
)  # fmt: skip
