"""Inputs to compare on: seeded random ones, and edges where kernels go wrong."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from autopipe.artifacts.signature import Port
from autopipe.config.dimension import Sizes

ARBITRARY_INTEGERS = 128
"""Upper bound of integers that select nothing: large enough to tell values apart."""
_NUDGE = 2.0
"""Units in the last place."""
_FACTORS = {"large": 100.0, "small": 1e-3}
_SPARSE = 32
"""One in so many elements is special where some are: the others tell what it does to them."""
_LEAST, _MOST = 0.01, 0.99
_NO_SIZES: Final[Sizes] = MappingProxyType({})
_Drawn = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
_OTHERWISE: Mapping[str, _Drawn] = {
    "positive": lambda generator, shape: np.abs(generator.standard_normal(shape)) + _LEAST,
    "between -1 and 1": lambda generator, shape: generator.uniform(-_MOST, _MOST, shape),
    "between 0 and 1": lambda generator, shape: generator.uniform(_LEAST, _MOST, shape),
    "above 1": lambda generator, shape: 1 + _LEAST + np.abs(generator.standard_normal(shape)),
}
"""How floats are drawn where a model has no answer to standard normal ones."""


@dataclass(frozen=True, slots=True)
class Case:
    """One set of inputs."""

    name: str
    """What is special about it, such as `random-0` or `zeros`."""
    edge: bool
    """Whether it may lie outside what the model is made for."""
    arrays: Mapping[str, np.ndarray]
    sizes: Sizes = field(default_factory=dict)
    """The size of each open dimension."""
    generic: bool = False
    """Whether the library for every size is asked, although there is one for just these sizes."""


def cases(
    ports: Sequence[Port],
    limits: Mapping[str, int],
    *,
    count: int,
    seed: int,
    sizes: Sizes = _NO_SIZES,
) -> Iterator[Case]:
    """Yield `count` random cases, then the edges.

    `limits` bounds integer inputs that select something: an index beyond it reads foreign
    memory. Floats are standard normal, never denormal; `large` is a hundred times that, `small`
    a thousandth.
    """
    for index in range(count):
        arrays = draw_inputs(ports, limits, (seed, index))
        yield Case(f"random-{index}", edge=False, arrays=arrays, sizes=sizes)
    base = draw_inputs(ports, limits, (seed, count))
    edges = ["zeros", "ones", "large"]
    if any(array.dtype.kind == "f" for array in base.values()):
        edges += ["small", "negative"]
    for edge in edges:
        arrays = {
            name: _make_edge_array(edge, array, limits.get(name)) for name, array in base.items()
        }
        yield Case(edge, edge=True, arrays=arrays, sizes=sizes)


def nudged(case: Case, seed: int, share: float = 0.0) -> Case:
    """Return the case with each float moved by a share of itself, by a few roundings at least.

    So few are what no program can tell apart. Zeros alone are moved by that share of 1: where a
    model normalizes what a constant leaves, over and over, they show that it is noise.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    arrays = {}
    for name, array in case.arrays.items():
        moved = array
        if array.dtype.kind == "f":
            signs = generator.choice([-1.0, 1.0], array.shape)
            by = max(share, _NUDGE * float(np.finfo(array.dtype).eps))
            near = array * (1 + signs * by) if array.any() else signs * by
            moved = np.asarray(near, array.dtype)
        arrays[name] = moved
    return replace(case, name=f"{case.name}, nudged", arrays=arrays)


def redraw_case(
    case: Case, ports: Sequence[Port], limits: Mapping[str, int], seed: tuple[int, ...]
) -> Iterator[Case]:
    """Yield other inputs for a case on which the reference is not finite, such as positive ones.

    Each is named after how its floats are drawn.
    """
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    base = draw_inputs(ports, limits, seed)
    for how, drawn in _OTHERWISE.items():
        arrays = {
            name: np.asarray(drawn(generator, array.shape), array.dtype)
            if array.dtype.kind == "f"
            else array
            for name, array in base.items()
        }
        yield replace(case, name=how, arrays=arrays)


def list_special_cases(
    ports: Sequence[Port], limits: Mapping[str, int], *, seed: int, sizes: Sizes = _NO_SIZES
) -> Iterator[Case]:
    """Yield cases with a few special elements in each float input, and one of signed integers.

    `tiny` has zeros of both signs and denormal numbers, `huge` the largest there are, `infinite`
    and `nan` what they say. Zero is no signed integer: nothing divides by it.
    """
    base = draw_inputs(ports, limits, (seed, len(_SPECIAL)))
    if any(array.dtype.kind == "f" for array in base.values()):
        for name, values in _SPECIAL.items():
            arrays = {port: _insert_values(array, values, seed) for port, array in base.items()}
            yield Case(name, edge=True, arrays=arrays, sizes=sizes)
    signed = {
        name: np.where(array % 2 == 0, array + 1, -array)
        for name, array in base.items()
        if array.dtype.kind == "i" and array.dtype.itemsize > 1 and name not in limits
    }
    if signed:
        yield Case("signed", edge=True, arrays=base | signed, sizes=sizes)


def _insert_values(
    array: np.ndarray, values: Callable[[np.finfo[Any]], list[float]], seed: int
) -> np.ndarray:
    """Return a copy with the values at random places, each at least once if there is room."""
    if array.dtype.kind != "f" or not array.size:
        return array
    generator = np.random.Generator(np.random.PCG64(seed))
    wanted = np.asarray(values(np.finfo(array.dtype)), array.dtype)
    count = min(array.size, max(len(wanted), array.size // _SPARSE))
    changed = array.copy()
    changed.reshape(-1)[generator.choice(array.size, count, replace=False)] = np.resize(
        wanted, count
    )
    return changed


def _list_tiny_values(info: np.finfo[Any]) -> list[float]:
    least, below = float(info.smallest_normal), float(info.smallest_subnormal)
    return [0.0, -0.0, least, -least, below, -below]


def _list_huge_values(info: np.finfo[Any]) -> list[float]:
    most = float(info.max)
    return [most, -most, most / 4, -most / 4]


_SPECIAL: Mapping[str, Callable[[np.finfo[Any]], list[float]]] = {
    "tiny": _list_tiny_values,
    "huge": _list_huge_values,
    "infinite": lambda _: [np.inf, -np.inf],
    "nan": lambda _: [np.nan],
}


def draw_inputs(
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
            bounds = _choose_integer_bounds(dtype, limits.get(port.name))
            array = np.asarray(generator.integers(*bounds, port.shape), dtype)
        arrays[port.name] = array
    return arrays


def _choose_integer_bounds(dtype: np.dtype, limit: int | None) -> tuple[int, int]:
    if dtype.kind == "b":
        return 0, 2
    if limit is not None:
        return 0, min(limit, np.iinfo(dtype).max + 1)
    if dtype.itemsize == 1:
        return np.iinfo(dtype).min, np.iinfo(dtype).max + 1
    return 0, ARBITRARY_INTEGERS


def _make_edge_array(edge: str, array: np.ndarray, limit: int | None) -> np.ndarray:
    if edge in {"zeros", "ones"}:
        return np.full_like(array, edge == "ones" and limit != 1)
    if array.dtype.kind == "f":
        changed = -np.abs(array) if edge == "negative" else array * _FACTORS[edge]
        return np.asarray(changed, array.dtype)
    if edge == "large":
        return np.full_like(array, _choose_integer_bounds(array.dtype, limit)[1] - 1)
    return array
