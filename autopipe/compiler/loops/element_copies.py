"""Run layout copies of weights with NumPy, without machine code.

Compiling such a function takes 20 ms, and it runs once.

Example: weights [32, 256] in columns of 16, [16, 32, 16], are read at the indices

    packed[a, b, c] = weights[b, min(a * 16 + c, 255)]

of which the second is an array [16, 1, 16], and the first an array [1, 32, 1]. A layout that
MetaSchedule rewrites has them in the store, `packed[d // 16, b, d % 16] = weights[b, d]`.

Where the flat index grows by the same step all along each axis, as here, the elements are a strided
view, which is copied without an index for each of them.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import add, floordiv, mod, mul, sub
from typing import Any, Final, Self

import numpy as np
from tvm.ir import Expr, TensorLoad, Var
from tvm.s_tir import SBlockRealize
from tvm.tirx import (
    Add,
    BufferStore,
    FloorDiv,
    FloorMod,
    For,
    IntImm,
    Max,
    Min,
    Mul,
    PrimFunc,
    SeqStmt,
    Stmt,
    Sub,
)

from autopipe.compiler.find_nodes import is_among

_AT_ONCE: Final = 1 << 22
"""Most elements with indices in memory at the same time."""

_Ranges = Mapping[Var, np.ndarray]
"""Values of the variables of a block, each along a separate axis."""

_OPERATIONS: Final[Mapping[type, Callable[[Any, Any], Any]]] = {
    Add: add, Sub: sub, Mul: mul, FloorDiv: floordiv, FloorMod: mod, Min: np.minimum,
    Max: np.maximum,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Copy:
    """A loop nest that only copies elements of one tensor to another."""

    axes: tuple[Var, ...]
    extents: tuple[int, ...]
    load: TensorLoad
    store: BufferStore

    @classmethod
    def of(cls, nest: Stmt) -> Self | None:
        """Match a loop nest that is a copy; None for any other."""
        loops: dict[Expr, int | None] = {}
        while isinstance(nest, For):
            loops[nest.loop_var] = _read_extent(nest.min, nest.extent)
            nest = nest.body
        if not isinstance(nest, SBlockRealize) or not _is_number(nest.predicate, 1):
            return None
        block, values = nest.block, [value for value in nest.iter_values if value in loops]
        extents = [_read_extent(axis.dom.min, axis.dom.extent) for axis in block.iter_vars]
        store = block.body
        if not loops or set(values) != set(loops) or len(values) != len(loops):
            return None
        if None in extents or [loops[value] for value in values] != extents:
            return None
        if not isinstance(store, BufferStore) or not isinstance(store.value, TensorLoad):
            return None
        axes = tuple(axis.var for axis in block.iter_vars)
        indices = (*store.value.indices, *store.indices)
        if block.init is not None or not all(_is_computable(index, axes) for index in indices):
            return None
        return cls(axes, tuple(extent or 0 for extent in extents), store.value, store)

    def apply(self, source: np.ndarray) -> np.ndarray:
        """Compute the stored tensor. Raises IndexError as `ElementCopies.apply`."""
        shape = tuple(int(extent) for extent in self.store.buffer.shape)
        result = np.empty(int(np.prod(shape)), source.dtype)
        is_stored = np.zeros(result.size, np.bool_)
        elements = np.ascontiguousarray(source).reshape(-1)
        for ranges in self._list_ranges():
            loaded = _Places.locate(self.load.indices, ranges, source.shape)
            stored = _Places.locate(self.store.indices, ranges, shape)
            stored.write(result, loaded.read(elements))
            stored.write(is_stored, np.True_)
        if not is_stored.all():
            raise IndexError(f"{self.store.buffer.name}: some elements are not stored")
        return result.reshape(shape)

    def _list_ranges(self) -> Iterator[_Ranges]:
        """Yield the values of the variables, in chunks along the first axis."""
        first, *inner_extents = self.extents
        step = max(1, _AT_ONCE // max(1, int(np.prod(inner_extents))))
        for begin in range(0, first, step):
            rows = np.arange(begin, min(begin + step, first))
            yield dict(zip(self.axes, np.ix_(rows, *map(np.arange, inner_extents)), strict=True))


@dataclass(frozen=True, slots=True)
class ElementCopies:
    """A function that copies the elements of its first parameters to its others."""

    function: PrimFunc
    copies: tuple[_Copy, ...]

    @classmethod
    def of(cls, function: PrimFunc) -> Self | None:
        """Match a function that consists of copies; None for any other."""
        root = function.body.block if isinstance(function.body, SBlockRealize) else None
        if root is None or root.alloc_buffers or root.iter_vars:
            return None
        nests = root.body.seq if isinstance(root.body, SeqStmt) else [root.body]
        copies = tuple(filter(None, map(_Copy.of, nests)))
        parameters = {parameter: at for at, parameter in enumerate(function.params)}
        result_positions = [parameters.get(copy.store.buffer) for copy in copies]
        source_positions = [parameters.get(copy.load.source) for copy in copies]
        first = len(parameters) - len(nests)
        if len(copies) != len(nests) or set(result_positions) != set(range(first, len(parameters))):
            return None
        is_read_only = all(at is not None and at < first for at in source_positions)
        return cls(function, copies) if is_read_only else None

    def apply(self, sources: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Compute the stored tensors.

        Raises IndexError for an index out of bounds, and if an element is not stored.
        """
        parameters = {parameter: at for at, parameter in enumerate(self.function.params)}
        results = {
            parameters[copy.store.buffer]: copy.apply(sources[parameters[copy.load.source]])
            for copy in self.copies
        }
        return [results[at] for at in sorted(results)]


def _read_extent(begin: Expr, extent: Expr) -> int | None:
    """Return the extent of a range from zero, or None if it is not static."""
    return int(extent) if _is_number(begin, 0) and isinstance(extent, IntImm) else None


def _is_number(value: object, number: int) -> bool:
    return isinstance(value, IntImm) and int(value) == number


def _is_computable(index: Expr, axes: Sequence[Var]) -> bool:
    """Tell whether an index is an expression of block variables and supported operations."""
    if isinstance(index, Var):
        return is_among(index, axes)
    if type(index) in _OPERATIONS:
        return _is_computable(index.a, axes) and _is_computable(index.b, axes)
    return isinstance(index, IntImm)


def _compute_index(index: Expr, ranges: _Ranges) -> np.ndarray:
    if isinstance(index, Var):
        return ranges[index]
    if isinstance(index, IntImm):
        return np.asarray(int(index))
    left, right = _compute_index(index.a, ranges), _compute_index(index.b, ranges)
    return np.asarray(_OPERATIONS[type(index)](left, right))


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the elements of a chunk lie in a flat tensor."""

    terms: tuple[np.ndarray, ...]
    """The flat index is their sum, broadcast to `sizes`."""
    sizes: tuple[int, ...]
    """Extents of the chunk along each axis."""

    @classmethod
    def locate(cls, indices: Sequence[Expr], ranges: _Ranges, shape: Sequence[int]) -> Self:
        """Compute the places of the elements with some indices. Raises IndexError."""
        terms = []
        for axis, (index, extent) in enumerate(zip(indices, shape, strict=True)):
            axis_index = _compute_index(index, ranges)
            if axis_index.min() < 0 or axis_index.max() >= extent:
                raise IndexError(f"index {index} leaves the {extent} elements of its axis")
            terms.append(axis_index.astype(np.int64) * math.prod(shape[axis + 1 :]))
        return cls(tuple(terms), tuple(values.size for values in ranges.values()))

    def read(self, elements: np.ndarray) -> np.ndarray:
        """Return the elements of the chunk."""
        view = self._view(elements)
        return elements[self._sum_terms()] if view is None else view

    def write(self, elements: np.ndarray, values: np.ndarray | np.bool) -> None:
        """Overwrite the elements of the chunk; the last value stays where some share a place."""
        view = self._view(elements)
        if view is None or _has_overlap(view):
            elements[self._sum_terms()] = values
        else:
            view[...] = values

    def _view(self, elements: np.ndarray) -> np.ndarray | None:
        """View the elements, if each axis has one stride."""
        strides = [self._find_stride(axis) for axis in range(len(self.sizes))]
        byte_strides = [stride * elements.itemsize for stride in strides if stride is not None]
        if len(byte_strides) < len(strides):
            return None
        start = sum(int(term.flat[0]) for term in self.terms)
        return np.lib.stride_tricks.as_strided(elements[start:], self.sizes, byte_strides)

    def _find_stride(self, axis: int) -> int | None:
        """Return the step of the flat index along an axis; None if steps differ."""
        stride = 0
        for term in self.terms:
            steps = np.diff(term, axis=axis) if term.ndim and term.shape[axis] > 1 else np.zeros(1)
            if steps.size and (steps != steps.flat[0]).any():
                return None
            stride += int(steps.flat[0])
        return stride

    def _sum_terms(self) -> np.ndarray:
        return sum(self.terms, np.zeros(self.sizes, np.int64))


def _has_overlap(view: np.ndarray) -> bool:
    """Tell whether elements of a view may share a place."""
    span = 1
    for stride, size in sorted(zip(map(abs, view.strides), view.shape, strict=True)):
        if size > 1 and stride < span:
            return True
        span += stride * (size - 1)
    return False
