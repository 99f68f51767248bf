"""Scatter and its relatives: elements put at computed places."""

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
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Convert,
    Converter,
    Inputs,
    Parameters,
    find_optional_input,
)
from autopipe.compiler.frontends.onnx.conversion.place_limits import (
    ALONG_AXIS,
    INDEX_LISTS,
    check_places,
)
from autopipe.compiler.frontends.onnx.conversion.places import (
    PlacesConverter,
    limit_along_axis,
    limit_index_lists,
    read_sizes,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import as_int64
from autopipe.compiler.frontends.onnx.dynamic_sizes.kernels import LoopBuffer, build_extern
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

# ruff: noqa: ARG003  TVM's converters have one signature

_STRIPE: Final = 1024
"""Elements of a row that one thread takes care of, in all rows."""
_SEVERAL: Final = 2


class TensorScatter(onnx_frontend.OnnxOpConverter):
    """A cache with new elements over old ones, from a place on that may differ in a batch."""

    @classmethod
    def _impl_v24(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        cache, update = inputs[0], inputs[1]
        axis = int(attr.get("axis", -2)) % cache.ty.ndim
        circular = attr.get("mode", b"linear") == b"circular"

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

        start = find_optional_input(inputs, 2)
        starts = [] if start is None else [start]
        return bb.emit_te(scatter, cache, update, *starts, primfunc_name_hint="tensor_scatter")


class Scatter(onnx_frontend.OnnxOpConverter):
    """Scatter and ScatterElements: elements at computed places of one axis.

    TVM's own takes the extents of the other axes from the data; the indices may have smaller ones.
    """

    @classmethod
    def _impl_v1(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        data, places, updates = inputs
        what = f"an input of {operand_facts.quote_node_name(attr)}"
        axis = int(attr.get("axis", 0)) % len(operand_facts.read_extents(data.ty, what))
        reduction = operand_facts.decode_text(attr.get("reduction", b"none")).replace(
            "none", "update"
        )
        operand_facts.read_extents(places.ty, what)
        pairs = enumerate(zip(read_sizes(data) or (), read_sizes(places) or (), strict=True))
        if all(at == axis or structural_equal(*pair) for at, pair in pairs):
            return relax.op.scatter_elements(data, places, updates, axis, reduction)
        shape = operand_facts.require_shape(data, what)
        given = (data, _flatten_places(bb, places, shape, axis), updates)
        rows = [bb.normalize(relax.op.reshape(each, [-1])) for each in given]
        made = bb.normalize(relax.op.scatter_elements(*rows, 0, reduction))
        return relax.op.reshape(made, shape)


def _flatten_places(bb: BlockBuilder, places: Expr, shape: list[int], axis: int) -> Expr:
    """Return places of one axis as places in the whole tensor, counted through all of its axes."""
    strides = [math.prod(shape[at + 1 :]) for at in range(len(shape))]
    grid = np.indices(operand_facts.require_shape(places, "indices"))
    start = sum(grid[at] * strides[at] for at in range(len(shape)) if at != axis)
    wide = bb.normalize(relax.op.astype(places, "int64"))
    negative = bb.normalize(relax.op.less(wide, relax.const(0, "int64")))
    counted = bb.normalize(relax.op.add(wide, relax.const(shape[axis], "int64")))
    wide = bb.normalize(relax.op.where(negative, counted, wide))
    steps = bb.normalize(relax.op.multiply(wide, relax.const(strides[axis], "int64")))
    return bb.normalize(relax.op.add(steps, relax.const(np.asarray(start), "int64")))


@dataclass(frozen=True)
class ScatteredRows:
    """A converter of ScatterND where nothing is added up and the places are computed."""

    otherwise: Converter
    """What converts all others."""

    def get_converter(self, opset: int) -> Convert:
        """Return what converts a node, as TVM's importer calls it."""

        def convert(bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters) -> Expr:
            added = operand_facts.decode_text(attr.get("reduction", b"none")) != "none"
            if added or not _has_computed_places(inputs, params):
                return self.otherwise.get_converter(opset)(bb, inputs, attr, params)
            check_places("ScatterND", INDEX_LISTS, inputs, attr)
            return replace_rows(bb, *inputs)

        return convert


def _has_computed_places(inputs: Inputs, params: Parameters) -> bool:
    """Tell whether places are computed, and the shapes are known but for open sizes."""
    shaped = all(getattr(getattr(one.ty, "shape", None), "values", None) for one in inputs)
    return shaped and operand_facts.read_values(inputs[1], params) is None


def replace_rows(bb: BlockBuilder, data: Expr, places: Expr, updates: Expr) -> Expr:
    """Return data with rows replaced, one after the other; places are cut to be inside.

    Args:
        bb: TVM's builder of blocks.
        data: A tensor [n1, ..., nk, row...].
        places: Whole numbers [updates..., k]; negative ones count from the end.
        updates: What is put there: [updates..., row...].
    """
    count = int(places.ty.shape.values[-1])
    sizes = data.ty.shape.values[:count]

    def scatter(data: te.Tensor, places: te.Tensor, updates: te.Tensor, *sizes: Expr) -> te.Tensor:
        def write(
            data: LoopBuffer, places: LoopBuffer, updates: LoopBuffer, out: LoopBuffer
        ) -> None:
            _Rows(data, places, updates, out, sizes).write()

        made = [(data.shape, data.dtype)]
        return build_extern(write, [data, places, updates], made, "scattered")[0]

    return bb.emit_te(scatter, data, places, updates, *sizes, primfunc_name_hint="scattered")


@dataclass(frozen=True)
class _Rows:
    """Writes the loops: all rows are copied, then some are replaced, each part of a row alike.

    Loops follow the axes of a row, as one index for all of them had to be divided.
    """

    data: LoopBuffer
    places: LoopBuffer
    updates: LoopBuffer
    out: LoopBuffer
    sizes: Sequence[Expr]
    """Sizes of the axes that places are of."""

    @property
    def _row(self) -> list[Expr]:
        return list(self.data.shape[len(self.sizes) :])

    def write(self) -> None:
        """Write the loops, over stripes of rows where a row is long."""
        most = self._choose_stripe()
        rows = _multiply_sizes(self.sizes)
        if most is None:
            with T.serial(as_int64(0), as_int64(1)):  # TVM wants a single statement
                whole = (as_int64(0), self._row[0] if self._row else as_int64(1))
                with T.parallel(as_int64(0), rows) as row:
                    self._copy_row(row, whole)
                self._replace(whole)
            return
        with T.parallel(as_int64(0), tirx.floordiv(self._row[0] + (most - 1), most)) as stripe:
            first = stripe * most
            part = first, tirx.min(self._row[0] - first, as_int64(most))
            with T.serial(as_int64(0), rows) as row:
                self._copy_row(row, part)
            self._replace(part)

    def _choose_stripe(self) -> int | None:
        """Return how many steps of the first axis of a row a stripe has; None for one stripe."""
        fixed = [int(size) for size in self._row if isinstance(size, tirx.IntImm)]
        if not fixed or len(fixed) < len(self._row):
            return None
        first, *others = fixed
        most = max(1, _STRIPE // max(1, prod(others)))
        return most if first > most else None

    def _copy_row(self, row: Expr, part: tuple[Expr, Expr]) -> None:
        at = _unfold_index(row, self.sizes)
        with self._loop_over_elements(part) as element:
            self.out[(*at, *element)] = self.data[(*at, *element)]

    def _replace(self, part: tuple[Expr, Expr]) -> None:
        """Write a part of each row that is replaced. Where there are no rows, none is."""
        updated = list(self.places.shape[:-1])
        some = tirx.all(*(size > 0 for size in self.sizes))
        with (
            T.If(some),
            T.Then(),
            T.serial(as_int64(0), _multiply_sizes(updated)) as number,
        ):
            source = _unfold_index(number, updated)
            at: list[Expr] = []
            for axis, size in enumerate(self.sizes):
                place = tirx.Cast("int64", self.places[(*source, as_int64(axis))])
                place = tirx.if_then_else(place < 0, place + size, place)
                at.append(T.Bind(tirx.max(tirx.min(place, size - 1), as_int64(0))))
            with self._loop_over_elements(part) as element:
                self.out[(*at, *element)] = self.updates[(*source, *element)]

    @contextmanager
    def _loop_over_elements(self, part: tuple[Expr, Expr]) -> Iterator[list[Expr]]:
        """Write loops over a part of a row; yield the place in the row."""
        first, length = part
        with ExitStack() as loops:
            lengths = [length, *self._row[1:]][: len(self._row)]
            at = [loops.enter_context(T.serial(as_int64(0), one)) for one in lengths]
            yield [first + at[0], *at[1:]] if at else []


def _multiply_sizes(sizes: Sequence[Expr]) -> Expr:
    return reduce(mul, sizes, as_int64(1))


def _unfold_index(number: Expr, sizes: Sequence[Expr]) -> list[Expr]:
    """Return the index along each axis of what is counted through all of them."""
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
        converter=PlacesConverter("Scatter", ALONG_AXIS, Scatter, limit_along_axis),
    ),
    Operator(
        name="ScatterElements",
        since=18,
        places=ALONG_AXIS,
        converter=PlacesConverter("ScatterElements", ALONG_AXIS, Scatter, limit_along_axis),
        traits=Trait.FOLDABLE,
    ),
    Operator(
        name="ScatterND",
        since=18,
        places=INDEX_LISTS,
        converter=ScatteredRows(
            PlacesConverter("ScatterND", INDEX_LISTS, onnx_frontend.ScatterND, limit_index_lists)
        ),
        traits=Trait.FOLDABLE,
    ),
    Operator(name="TensorScatter", since=24, converter=TensorScatter),
)
