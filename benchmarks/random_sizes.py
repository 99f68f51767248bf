"""Calls a package at random sizes, and looks at the memory of the process that does."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from autopipe.artifacts.library import BuiltLibrary
from autopipe.config.dimension import Dimension, Sizes, list_end_sizes
from autopipe.host.memory import resident


def drawn_sizes(dimensions: dict[str, Dimension], seed: int) -> Iterator[Sizes]:
    """Yield random sizes without end; small ones are as frequent as large ones."""
    generator = np.random.default_rng(seed)
    while True:
        yield {
            name: min(
                int(one.first * (one.last / one.first + 1e-9) ** generator.uniform())
                // one.multiple * one.multiple + one.multiple * int(generator.integers(2)),
                one.last,
            )
            for name, one in dimensions.items()
        }  # fmt: skip


def residents(build: Path, calls: int) -> list[int]:
    """Return the bytes of this process in memory after each call at random sizes.

    The largest sizes are called before the first that is counted.
    """
    from autopipe.compiler.library.runtime import load_artifact

    model = load_artifact(build)
    signature = BuiltLibrary.read(build).signature
    numbers = np.random.default_rng(0)
    found = []
    draws = drawn_sizes(signature.dimensions, seed=0)
    for sizes in (list_end_sizes(signature.dimensions)[1], *(next(draws) for _ in range(calls))):
        model({
            port.name: numbers.integers(0, 2, port.shape).astype(port.dtype)
            for port in signature.at(sizes)
        })  # fmt: skip
        found.append(resident())
    return found[1:]
