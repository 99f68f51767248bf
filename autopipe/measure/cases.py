"""Inputs that distinguish a correct schedule from a wrong one."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import tvm

from autopipe.compiler.dynamic_sizes.kernel_sizes import (
    Counts,
    DynamicSizes,
    bind_kernel_sizes,
    evaluate_extent,
    list_size_params,
    read_dynamic_sizes,
)
from autopipe.compiler.loops import index_inputs

_PERIOD: Final = 65521
"""Values after which a pattern repeats: a prime, so that no stride of an array hits it."""

_SPARSE: Final = 13
"""Stride of nonzero elements in sparse inputs, which show few terms of a sum."""

_LARGE: Final = {"float16": 8.0}
"""Magnitude of large values; of the others, 1e4. Sums of their products have to be finite."""

_EDGES: Final = (2, 3, 5, 8, 13, 16, 17, 31, 65, 1 << 40)
"""Sizes around whole tiles; the last one is above every likely size."""

_KEPT: Final = 64
"""Number of arguments with cached values: 256 KiB each of float32."""

_WORK: Final = 1 << 21
"""Stores of the unscheduled loops that a check may take at any sizes."""

_SHARE: Final = 0.25
"""Share of the work at likely sizes that a check near tile boundaries may take."""

_INNER: Final = ("body", "block", "init", "then_case", "else_case")
"""Names of the parts of a statement."""

Pattern = np.ndarray[Any, np.dtype[Any]]


def _make_random(seed: int) -> Pattern:
    return np.random.default_rng(seed).uniform(-1.0, 1.0, _PERIOD)


def _make_spikes(seed: int) -> Pattern:
    """Zeros with sparse ascending values: a wrong index reads a different one."""
    values = np.linspace(0.1, 1.0, _PERIOD)
    return np.where((np.arange(_PERIOD) + seed) % _SPARSE == 0, values, 0.0)


CASES: Final[Mapping[str, Callable[[int], Pattern]]] = {
    "random": _make_random,
    "spikes": _make_spikes,
    "large": _make_random,
    "zeros": lambda _: np.zeros(_PERIOD),
}
"""The cases by name, in the order of the check."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A workload at certain sizes, and its inputs there."""

    case: str
    """Name of one of `CASES`."""
    workload: tvm.IRModule
    """The workload, with static or dynamic shapes."""
    sizes: Counts | None = None
    """Its dynamic sizes here; None for static shapes."""
    counts: tuple[tuple[int, int], ...] = ()
    """Positions and values of the size arguments of a function with dynamic shapes."""
    given: tuple[np.ndarray, ...] | None = None
    """Captured arguments, outputs included; None for synthetic ones."""

    def bind_sizes(self) -> tvm.IRModule:
        """Return the workload with static shapes."""
        return self.workload if self.sizes is None else bind_kernel_sizes(self.workload, self.sizes)

    def arguments(self, seed: int, nudge: float = 0.0) -> list[np.ndarray]:
        """Create arguments for `main`, as `make_case_arguments` does."""
        if self.given is None:
            return make_case_arguments(self.workload, self.case, seed, nudge, self.sizes)
        return [nudge_floats(array, seed + i, nudge) for i, array in enumerate(self.given)]


def list_instances(workload: tvm.IRModule) -> list[Instance]:
    """List the instances that a workload is checked on: all cases.

    With dynamic shapes: a random one just above the likely sizes, at the smallest ones and near
    tile boundaries, and all cases at one of the latter. The others show wrong values and terms,
    which small sizes have as large ones do; a random one shows wrong places.
    """
    function = workload["main"]
    dynamic_sizes = read_dynamic_sizes(function)
    if dynamic_sizes is None:
        return [Instance(case, workload) for case in CASES]
    above, edges = _go_above(dynamic_sizes), list(_near_tiles(function.body, dynamic_sizes))
    middle = edges[len(edges) // 2] if edges else above
    sized_cases = [
        ("random", sizes) for sizes in _drop_repeats([above, dynamic_sizes.smallest, *edges])
    ]
    sized_cases += [(case, middle) for case in CASES if case != "random"]
    positions = [(at, str(size.name)) for at, size in list_size_params(function)]
    return [
        Instance(case, workload, sizes, tuple((at, sizes[name]) for at, name in positions))
        for case, sizes in sized_cases
    ]


def _go_above(dynamic_sizes: DynamicSizes) -> Counts:
    """Return the likely sizes, with the last one that may be larger one larger."""
    likely, largest = dynamic_sizes.likely, dynamic_sizes.largest
    growing = [name for name, count in likely.items() if count < largest[name]][-1:]
    return {name: count + (name in growing) for name, count in likely.items()}


def _drop_repeats(sizes: Sequence[Counts]) -> list[Counts]:
    return [one for at, one in enumerate(sizes) if one not in sizes[:at]]


def _near_tiles(body: tvm.tirx.Stmt, dynamic_sizes: DynamicSizes) -> Iterator[Counts]:
    """Yield sizes on either side of tile boundaries.

    The boundaries are tiles of 2, 4, 8 and so on, up to the largest sizes. Where the unscheduled
    loops `body` would take long, sizes are at most one above the likely ones; those that take more
    than a share of the work at likely sizes are left out, since larger ones only have more tiles.
    """
    above = {
        name: min(count + 1, dynamic_sizes.largest[name])
        for name, count in dynamic_sizes.likely.items()
    }
    most_stores = max(_WORK, _SHARE * count_stores(body, dynamic_sizes.likely))
    for place in range(len(_EDGES)):
        edges = {
            name: max(_EDGES[(place + shift) % len(_EDGES)], dynamic_sizes.smallest[name])
            for shift, name in enumerate(dynamic_sizes.likely)
        }
        far, near = (
            {name: min(edge, most[name]) for name, edge in edges.items()}
            for most in (dynamic_sizes.largest, above)
        )
        if count_stores(body, far) <= _WORK:
            yield far
        elif count_stores(body, near) <= most_stores:
            yield near


def count_stores(part: tvm.tirx.Stmt, sizes: Counts) -> float:
    """Count the stores that the loops of a statement execute; infinity if that is unknown."""
    if isinstance(part, tvm.tirx.BufferStore):
        return 1
    inner = filter(None, (getattr(part, name, None) for name in _INNER))
    stores = sum(count_stores(one, sizes) for one in (*inner, *getattr(part, "seq", ())))
    if isinstance(part, tvm.tirx.For):
        extent = evaluate_extent(part.extent, sizes)
        return math.inf if extent is None else stores * extent
    return stores


def make_case_arguments(
    module: tvm.IRModule,
    case: str,
    seed: int,
    nudge: float = 0.0,
    sizes: Counts | None = None,
) -> list[np.ndarray]:
    """Create arguments for `main`, the same ones for the same case and seed.

    `nudge` perturbs each float by that number of units in the last place, up or down. `sizes` are
    the dynamic sizes of `main`. Raises ValueError if they do not determine all shapes.

    int8 and uint8 take all their values. Wider integers that are indices take all valid indices,
    divisors are 1, and others are 0 and 1.
    """
    tensors = [p.ty for p in module["main"].params if isinstance(p.ty, tvm.tirx.BufferType)]
    ranges = [range(0)] * len(tensors)
    if any("int" in str(tensor.dtype) for tensor in tensors):
        bound_module = module if sizes is None else bind_kernel_sizes(module, sizes)
        ranges = _find_integer_ranges(bound_module["main"])
    return [
        np.resize(  # repeats the values
            nudge_floats(_draw_values(case, seed + i, str(tensor.dtype), span), seed + i, nudge),
            _evaluate_shape(tensor, sizes or {}),
        )
        for i, (tensor, span) in enumerate(zip(tensors, ranges, strict=True))
    ]


def _evaluate_shape(tensor: tvm.tirx.BufferType, sizes: Counts) -> list[int]:
    shape = [evaluate_extent(extent, sizes) for extent in tensor.shape]
    if None in shape:
        raise ValueError(f"a shape of {tensor.shape} is not known at {dict(sizes)}")
    return [extent for extent in shape if extent is not None]


def _find_integer_ranges(function: tvm.tirx.PrimFunc) -> list[range]:
    """Find the ranges of integers wider than 8 bits, by parameter."""
    limits: dict[str, int] = {}
    index_inputs.trace_indices(function, {param: {param.name} for param in function.params}, limits)
    divisors = index_inputs.find_divisors(function)
    return [
        range(param in divisors, max(1, limits.get(param.name, 2))) for param in function.params
    ]


def nudge_floats(values: np.ndarray, seed: int, nudge: float) -> np.ndarray:
    """Perturb floats by `nudge` units in the last place, up or down."""
    if not nudge or values.dtype.kind != "f":
        return values
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], values.shape)
    return (values * (1 + signs * nudge * np.finfo(values.dtype).eps)).astype(values.dtype)


@lru_cache(maxsize=_KEPT)
def _draw_values(case: str, seed: int, dtype: str, span: range) -> Pattern:
    """Return the values of an argument, which all sizes and both sides of a check share."""
    values = _cast_pattern(CASES[case](seed), dtype, case, span)
    values.flags.writeable = False
    return values


def _cast_pattern(pattern: Pattern, dtype: str, case: str, span: range) -> Pattern:
    kind = np.dtype(dtype)  # TVM brings the package that teaches numpy bfloat16
    if kind.kind in "iu" and kind.itemsize == 1:
        limits = np.iinfo(kind)
        low = 0 if kind.kind == "u" else limits.min
        return np.clip(np.round(pattern * limits.max), low, limits.max).astype(kind)
    if kind.kind == "b":
        return pattern > 0
    if kind.kind in "iu":
        return np.clip(np.ceil(pattern * (span.stop - 1)), span.start, span.stop - 1).astype(kind)
    if case == "large":
        pattern = pattern * _LARGE.get(dtype, 1e4)
    return pattern.astype(kind)
