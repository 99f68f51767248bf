"""Scatter and its relatives: elements written at computed indices."""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from math import prod
from operator import mul
from typing import Final

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it
from tvm_ffi import structural_equal

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder
from autopipe.compiler.frontends.onnx.conversion.places import (
    ALONG_AXIS,
    INDEX_LISTS,
    clip_before,
    count_from_end,
    limit_along_axis,
    limit_index_lists,
)
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import as_int64
from autopipe.compiler.frontends.onnx.dynamic_sizes.kernels import LoopBuffer, build_extern
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

_STRIPE: Final = 1024
"""Elements of a row per thread, for all rows."""
_SEVERAL: Final = 2


def convert_tensor_scatter(site: NodeSite) -> Expr:
    """Convert TensorScatter: a cache overwritten from a start that may differ in a batch."""
    cache, update = site.inputs[0], site.inputs[1]
    axis = int(site.attr.get("axis", -2)) % cache.ty.ndim
    circular = site.attr.get("mode", b"linear") == b"circular"

    def scatter(cache: te.Tensor, update: te.Tensor, *starts: te.Tensor) -> te.Tensor:
        length, count = int(cache.shape[axis]), int(update.shape[axis])

        def at(*index: Expr) -> Expr:
            place = index[axis].astype("int64")
            if starts:
                place = place - starts[0][index[0]].astype("int64")
            if circular:
                place = tirx.floormod(place, tirx.const(length, "int64"))
            new = tirx.all(place >= 0, place < count)
            return tirx.if_then_else(
                new, update[*index[:axis], place, *index[axis + 1 :]], cache[index]
            )

        return te.compute(cache.shape, at, name="tensor_scatter")

    start = site.find_input(2)
    starts = [] if start is None else [start]
    return site.bb.emit_te(scatter, cache, update, *starts, primfunc_name_hint="tensor_scatter")


def convert_scatter(site: NodeSite) -> Expr:
    """Convert Scatter and ScatterElements: elements written at computed indices of one axis.

    TVM's operator takes the extents of the other axes from the data; the indices may be smaller.
    """
    bb = site.bb
    data, places, updates = site.inputs
    label = f"an input of {site.name!r}"
    axis = int(site.attr.get("axis", 0)) % len(operand_facts.read_extents(data.ty, label))
    reduction = operand_facts.decode_text(site.attr.get("reduction", b"none")).replace(
        "none", "update"
    )
    operand_facts.read_extents(places.ty, label)
    pairs = zip(*(operand_facts.read_sizes(one.ty) or () for one in (data, places)), strict=True)
    if all(at == axis or structural_equal(*pair) for at, pair in enumerate(pairs)):
        return relax.op.scatter_elements(data, places, updates, axis, reduction)
    shape = operand_facts.require_shape(data, label)
    operands = (data, _flatten_places(bb, places, shape, axis), updates)
    rows = [bb.normalize(relax.op.reshape(each, [-1])) for each in operands]
    return relax.op.reshape(relax.op.scatter_elements(*rows, 0, reduction), shape)


def _flatten_places(bb: BlockBuilder, places: Expr, shape: list[int], axis: int) -> Expr:
    """Convert indices along one axis to flat indices of the tensor."""
    strides = [math.prod(shape[at + 1 :]) for at in range(len(shape))]
    grid = np.indices(operand_facts.require_shape(places, "indices"))
    start = sum(grid[at] * strides[at] for at in range(len(shape)) if at != axis)
    steps = count_from_end(bb, places, relax.const(shape[axis], "int64"))
    steps *= relax.const(strides[axis], "int64")
    return bb.normalize(steps + relax.const(np.asarray(start), "int64"))


_CLIP_AND_SCATTER: Final = clip_before(onnx_frontend.ScatterND, limit_index_lists)


def convert_scatter_nd(site: NodeSite) -> Expr:
    """Convert ScatterND; without reduction at computed indices as loops over rows."""
    has_reduction = operand_facts.decode_text(site.attr.get("reduction", b"none")) != "none"
    has_shapes = all(operand_facts.read_sizes(one.ty) for one in site.inputs)
    is_constant = site.read_values(1) is not None
    if has_reduction or not has_shapes or is_constant:
        return site.convert_by(_CLIP_AND_SCATTER)
    return replace_rows(site.bb, *site.inputs)


def replace_rows(bb: BlockBuilder, data: Expr, places: Expr, updates: Expr) -> Expr:
    """Replace rows of data one after the other; indices are clipped to the data.

    Args:
        bb: TVM's block builder.
        data: A tensor [n1, ..., nk, row...].
        places: Integers [updates..., k]; negative ones count from the end.
        updates: The new rows: [updates..., row...].
    """
    count = int(places.ty.shape.values[-1])
    sizes = data.ty.shape.values[:count]

    def scatter(data: te.Tensor, places: te.Tensor, updates: te.Tensor, *sizes: Expr) -> te.Tensor:
        def write(
            data: LoopBuffer, places: LoopBuffer, updates: LoopBuffer, out: LoopBuffer
        ) -> None:
            _Rows(data, places, updates, out, sizes).write()

        outputs = [(data.shape, data.dtype)]
        return build_extern(write, [data, places, updates], outputs, "scattered")[0]

    return bb.emit_te(scatter, data, places, updates, *sizes, primfunc_name_hint="scattered")


@dataclass(frozen=True)
class _Rows:
    """The loops of ScatterND: copy all rows, then replace some, for each part of a row alike.

    Loops follow the axes of a row, because a flat index would need divisions.
    """

    data: LoopBuffer
    places: LoopBuffer
    updates: LoopBuffer
    out: LoopBuffer
    sizes: Sequence[Expr]
    """Sizes of the indexed axes."""

    @property
    def _row(self) -> list[Expr]:
        return list(self.data.shape[len(self.sizes) :])

    def write(self) -> None:
        """Write the loops, parallel over stripes of a row if a row is long."""
        most = self._choose_stripe()
        rows = _multiply_sizes(self.sizes)
        if most is None:
            with T.serial(as_int64(0), as_int64(1)):  # TVM requires a single statement
                full_part = (as_int64(0), self._row[0] if self._row else as_int64(1))
                with T.parallel(as_int64(0), rows) as row:
                    self._copy_row(row, full_part)
                self._replace(full_part)
            return
        with T.parallel(as_int64(0), tirx.floordiv(self._row[0] + (most - 1), most)) as stripe:
            first = stripe * most
            part = first, tirx.min(self._row[0] - first, as_int64(most))
            with T.serial(as_int64(0), rows) as row:
                self._copy_row(row, part)
            self._replace(part)

    def _choose_stripe(self) -> int | None:
        """Return the extent of a stripe along the first axis of a row; None for one stripe."""
        static_sizes = [int(size) for size in self._row if isinstance(size, tirx.IntImm)]
        if not static_sizes or len(static_sizes) < len(self._row):
            return None
        first, *inner_sizes = static_sizes
        most = max(1, _STRIPE // max(1, prod(inner_sizes)))
        return most if first > most else None

    def _copy_row(self, row: Expr, part: tuple[Expr, Expr]) -> None:
        at = _unfold_index(row, self.sizes)
        with self._loop_over_elements(part) as element:
            self.out[(*at, *element)] = self.data[(*at, *element)]

    def _replace(self, part: tuple[Expr, Expr]) -> None:
        """Write a part of each replaced row; none if the data have no rows."""
        update_sizes = list(self.places.shape[:-1])
        some = tirx.all(*(size > 0 for size in self.sizes))
        with (
            T.If(some),
            T.Then(),
            T.serial(as_int64(0), _multiply_sizes(update_sizes)) as number,
        ):
            source = _unfold_index(number, update_sizes)
            at: list[Expr] = []
            for axis, size in enumerate(self.sizes):
                place = tirx.Cast("int64", self.places[(*source, as_int64(axis))])
                place = tirx.if_then_else(place < 0, place + size, place)
                at.append(T.Bind(tirx.max(tirx.min(place, size - 1), as_int64(0))))
            with self._loop_over_elements(part) as element:
                self.out[(*at, *element)] = self.updates[(*source, *element)]

    @contextmanager
    def _loop_over_elements(self, part: tuple[Expr, Expr]) -> Iterator[list[Expr]]:
        """Write loops over a part of a row; yields the index within the row."""
        first, length = part
        with ExitStack() as loops:
            lengths = [length, *self._row[1:]][: len(self._row)]
            at = [loops.enter_context(T.serial(as_int64(0), one)) for one in lengths]
            yield [first + at[0], *at[1:]] if at else []


def _multiply_sizes(sizes: Sequence[Expr]) -> Expr:
    return reduce(mul, sizes, as_int64(1))


def _unfold_index(number: Expr, sizes: Sequence[Expr]) -> list[Expr]:
    """Convert a flat index to an index along each axis."""
    if len(sizes) < _SEVERAL:
        return [number] * len(sizes)
    inner = [_multiply_sizes(sizes[axis + 1 :]) for axis in range(len(sizes))]
    return [
        tirx.floormod(tirx.floordiv(number, tirx.max(below, 1)), tirx.max(size, 1))
        for size, below in zip(sizes, inner, strict=True)
    ]


OPERATORS: Final = (
    Operator(
        name="Scatter",
        since=11,
        places=ALONG_AXIS,
        converter=clip_before(convert_scatter, limit_along_axis),
    ),
    Operator(
        name="ScatterElements",
        since=18,
        places=ALONG_AXIS,
        converter=clip_before(convert_scatter, limit_along_axis),
        traits=Trait.FOLDABLE,
    ),
    Operator(
        name="ScatterND",
        since=18,
        places=INDEX_LISTS,
        converter=convert_scatter_nd,
        traits=Trait.FOLDABLE,
    ),
    Operator(name="TensorScatter", since=24, converter=convert_tensor_scatter),
)
