"""Inputs to compare on: seeded random ones, and edge cases where kernels go wrong."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from autopipe.artifacts.signature import Port
from autopipe.config.dimension import Sizes

ARBITRARY_INTEGERS = 128
"""Exclusive upper bound of integers that are no indices: large enough to distinguish values."""
_NUDGE = 2.0
"""Units in the last place."""
_FACTORS = {"large": 100.0, "small": 1e-3}
_SPARSE = 32
"""Stride of special elements in an array that has some: the others show their effect."""
_LEAST, _MOST = 0.01, 0.99
_NO_SIZES: Final[Sizes] = MappingProxyType({})
_Drawn = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
_OTHERWISE: Mapping[str, _Drawn] = {
    "positive": lambda generator, shape: np.abs(generator.standard_normal(shape)) + _LEAST,
    "between -1 and 1": lambda generator, shape: generator.uniform(-_MOST, _MOST, shape),
    "between 0 and 1": lambda generator, shape: generator.uniform(_LEAST, _MOST, shape),
    "above 1": lambda generator, shape: 1 + _LEAST + np.abs(generator.standard_normal(shape)),
}
"""Distributions of floats for models without finite outputs on standard normal ones."""


@dataclass(frozen=True, slots=True)
class Case:
    """One set of inputs."""

    name: str
    """Names its distribution, such as `random-0` or `zeros`."""
    edge: bool
    """Whether it may lie outside the model's typical inputs."""
    arrays: Mapping[str, np.ndarray]
    sizes: Sizes = field(default_factory=dict)
    """The size of each dynamic dimension."""
    generic: bool = False
    """Whether the generic library runs, although there is one specialized for these sizes."""


def cases(
    ports: Sequence[Port],
    limits: Mapping[str, int],
    *,
    count: int,
    seed: int,
    sizes: Sizes = _NO_SIZES,
) -> Iterator[Case]:
    """Yield `count` random cases, then the edge cases.

    `limits` bounds integer inputs that are indices: one beyond it reads out of bounds. Floats are
    standard normal, never denormal; `large` is a hundred times that, `small` a thousandth.
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
    """Perturb each float of a case by a relative share, at least by a few units in the last place.

    No program can distinguish so few. All-zero inputs are perturbed by that share of 1: where a
    model normalizes the rounding errors of a constant repeatedly, they show that it is noise.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    arrays = {}
    for name, array in case.arrays.items():
        perturbed_array = array
        if array.dtype.kind == "f":
            signs = generator.choice([-1.0, 1.0], array.shape)
            by = max(share, _NUDGE * float(np.finfo(array.dtype).eps))
            near = array * (1 + signs * by) if array.any() else signs * by
            perturbed_array = np.asarray(near, array.dtype)
        arrays[name] = perturbed_array
    return replace(case, name=f"{case.name}, nudged", arrays=arrays)


def redraw_case(
    case: Case, ports: Sequence[Port], limits: Mapping[str, int], seed: tuple[int, ...]
) -> Iterator[Case]:
    """Yield alternative inputs, such as positive ones, where the reference is not finite.

    Each is named after the distribution of its floats.
    """
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    base = draw_inputs(ports, limits, seed)
    for how, draw in _OTHERWISE.items():
        arrays = {
            name: np.asarray(draw(generator, array.shape), array.dtype)
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
    and `nan` the values they name. The signed integers exclude zero, a divisor in some models.
    """
    base = draw_inputs(ports, limits, (seed, len(_SPECIAL)))
    if any(array.dtype.kind == "f" for array in base.values()):
        for name, values in _SPECIAL.items():
            arrays = {port: _insert_values(array, values, seed) for port, array in base.items()}
            yield Case(name, edge=True, arrays=arrays, sizes=sizes)
    signed_arrays = {
        name: np.where(array % 2 == 0, array + 1, -array)
        for name, array in base.items()
        if array.dtype.kind == "i" and array.dtype.itemsize > 1 and name not in limits
    }
    if signed_arrays:
        yield Case("signed", edge=True, arrays=base | signed_arrays, sizes=sizes)


def _insert_values(
    array: np.ndarray, values: Callable[[np.finfo[Any]], list[float]], seed: int
) -> np.ndarray:
    """Copy an array with the values at random positions, each at least once if there is room."""
    if array.dtype.kind != "f" or not array.size:
        return array
    generator = np.random.Generator(np.random.PCG64(seed))
    special_values = np.asarray(values(np.finfo(array.dtype)), array.dtype)
    count = min(array.size, max(len(special_values), array.size // _SPARSE))
    copy = array.copy()
    copy.reshape(-1)[generator.choice(array.size, count, replace=False)] = np.resize(
        special_values, count
    )
    return copy


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
    """Draw random arrays for the ports; the same seed gives the same arrays."""
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
        edge_array = -np.abs(array) if edge == "negative" else array * _FACTORS[edge]
        return np.asarray(edge_array, array.dtype)
    if edge == "large":
        return np.full_like(array, _choose_integer_bounds(array.dtype, limit)[1] - 1)
    return array
