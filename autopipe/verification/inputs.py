"""Inputs to compare on: seeded random ones, and edges where kernels go wrong."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autopipe.artifacts.signature import Port

_ARBITRARY_INTEGERS = 128
"""Upper bound of integers that select nothing: large enough to tell values apart."""
_NUDGE = 2.0
"""Units in the last place."""
_FACTORS = {"large": 100.0, "small": 1e-3}


@dataclass(frozen=True, slots=True)
class Case:
    """One set of inputs."""

    name: str
    """What is special about it, such as `random-0` or `zeros`."""
    edge: bool
    """Whether it may lie outside what the model is made for."""
    arrays: Mapping[str, np.ndarray]


def cases(
    ports: Sequence[Port], limits: Mapping[str, int], *, count: int, seed: int
) -> Iterator[Case]:
    """Yield `count` random cases, then the edges.

    `limits` bounds integer inputs that select something: an index beyond it reads foreign
    memory. Floats are standard normal, never denormal; `large` is a hundred times that, `small`
    a thousandth.
    """
    for index in range(count):
        yield Case(f"random-{index}", edge=False, arrays=draw(ports, limits, (seed, index)))
    base = draw(ports, limits, (seed, count))
    edges = ["zeros", "ones", "large"]
    if any(array.dtype.kind == "f" for array in base.values()):
        edges += ["small", "negative"]
    for edge in edges:
        arrays = {name: _edge(edge, array, limits.get(name)) for name, array in base.items()}
        yield Case(edge, edge=True, arrays=arrays)


def nudged(case: Case, seed: int) -> Case:
    """Return the case with each float a few roundings away: what no program can tell apart."""
    generator = np.random.Generator(np.random.PCG64(seed))
    arrays = {}
    for name, array in case.arrays.items():
        moved = array
        if array.dtype.kind == "f":
            signs = generator.choice([-1.0, 1.0], array.shape)
            moved = np.asarray(
                array * (1 + signs * _NUDGE * np.finfo(array.dtype).eps), array.dtype
            )
        arrays[name] = moved
    return Case(f"{case.name}, nudged", edge=case.edge, arrays=arrays)


def draw(
    ports: Sequence[Port], limits: Mapping[str, int], seed: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Return random arrays for the ports; the same seed gives the same arrays."""
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    arrays = {}
    for port in ports:
        dtype = np.dtype(port.dtype)
        if dtype.kind == "f":
            array = np.asarray(generator.standard_normal(port.shape), dtype)
        else:
            bounds = _bounds(dtype, limits.get(port.name))
            array = np.asarray(generator.integers(*bounds, port.shape), dtype)
        arrays[port.name] = array
    return arrays


def _bounds(dtype: np.dtype, limit: int | None) -> tuple[int, int]:
    if dtype.kind == "b":
        return 0, 2
    if limit is not None:
        return 0, min(limit, np.iinfo(dtype).max + 1)
    if dtype.itemsize == 1:
        return np.iinfo(dtype).min, np.iinfo(dtype).max + 1
    return 0, _ARBITRARY_INTEGERS


def _edge(edge: str, array: np.ndarray, limit: int | None) -> np.ndarray:
    if edge in {"zeros", "ones"}:
        return np.full_like(array, edge == "ones" and limit != 1)
    if array.dtype.kind == "f":
        changed = -np.abs(array) if edge == "negative" else array * _FACTORS[edge]
        return np.asarray(changed, array.dtype)
    if edge == "large":
        return np.full_like(array, _bounds(array.dtype, limit)[1] - 1)
    return array
