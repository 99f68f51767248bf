"""Converters of operators that read and write at places which are computed.

ONNX leaves open what a place outside of a tensor means, and onnxruntime stops there. A kernel can
not: TVM's would read and write memory that is not its own. So computed places are cut to be inside.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import GenericConst
from tvm.relax.frontend.onnx import onnx_frontend
from tvm_ffi import structural_equal

from autopipe.compiler.frontends.onnx import known, lookups
from autopipe.compiler.frontends.onnx.scattering import ScatteredRows
from autopipe.errors import ModelError

# ruff: noqa: ANN401  TVM's converters have no types, and one signature

_FURTHEST: Final = 2**30
"""Pixels from the middle of an image: what is further away counts as there. 32 bits hold them."""

_LONGEST: Final = 2**16
"""Pixels that a side of an open size is taken to have at most."""


def within(bb: Any, indices: Any, extents: Sequence[Any], params: Any, what: str) -> Any:
    """Return indices cut to an extent, or to one extent for each entry of their last axis.

    Negative ones count from the end, and stay. Raises `ModelError` for constants that are outside.
    """
    if not all(isinstance(extent, int) for extent in extents):
        return _within_open(bb, indices, extents)
    most = np.array(extents if len(extents) > 1 else extents[0])
    values = known.values(indices, params)
    if values is not None:
        if ((values < -most) | (values >= most)).any():
            raise ModelError(f"{what} has places outside of {list(extents)}")
        return indices
    dtype = str(indices.ty.dtype)
    first, last = (relax.const(bound, dtype) for bound in (-most, most - 1))
    return bb.normalize(relax.op.minimum(bb.normalize(relax.op.maximum(indices, first)), last))


def _within_open(bb: Any, indices: Any, extents: Sequence[Any]) -> Any:
    """Return indices cut to extents of which some are open."""
    dtype = str(indices.ty.dtype)

    def cut(indices: Any, *extents: Any) -> Any:
        def at(*index: Any) -> Any:
            extent = extents[0]
            for entry, other in enumerate(extents[1:], 1):
                extent = tirx.if_then_else(index[-1] == entry, other, extent)
            extent = tirx.Cast(dtype, extent)
            return tirx.max(tirx.min(indices[index], extent - 1), -extent)

        return te.compute(indices.shape, at, name="within")

    given = (tirx.const(size, "int64") if isinstance(size, int) else size for size in extents)
    return bb.emit_te(cut, indices, *given, primfunc_name_hint="within")


@dataclass(frozen=True)
class _Cut:
    """A converter of TVM that gets places inside of the tensor only."""

    kind: str
    converter: Any
    cut: Callable[..., Any]

    def get_converter(self, opset: int) -> Any:
        """Return what converts a node, as TVM's importer calls it."""

        def convert(bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
            shape = _sizes(inputs[0])
            lookups.check(self.kind, inputs, attr)
            given = inputs if shape is None else self.cut(bb, inputs, shape, attr, params)
            return self.converter.get_converter(opset)(bb, given, attr, params)

        return convert


def _along(bb: Any, inputs: Any, shape: list[Any], attr: Any, params: Any) -> Any:
    """Return the inputs of an operator whose second one holds places along one axis."""
    data, indices, *others = inputs
    if isinstance(indices.ty, relax.ShapeType):
        return inputs
    extent = shape[int(attr.get("axis", 0))]
    what = f"the second input of {known.name(attr)}"
    cut = within(bb, indices, [extent], params, what)
    return onnx_frontend.onnx_input([data, cut, *others])


def _along_many(bb: Any, inputs: Any, shape: list[Any], attr: Any, params: Any) -> Any:
    """Return the inputs of an operator whose second one holds places along several axes."""
    data, indices, *others = inputs
    what = f"the second input of {known.name(attr)}"
    first, count = int(attr.get("batch_dims", 0)), known.extents_of(indices.ty, what)[-1]
    if count < 0:
        raise ModelError(f"{what} has a last axis whose size is open")
    cut = within(bb, indices, shape[first : first + count], params, what)
    return onnx_frontend.onnx_input([data, cut, *others])


def _near(bb: Any, inputs: Any, shape: list[Any], attr: Any, params: Any) -> Any:  # noqa: ARG001
    """Return image and grid of an operator whose places are pixels from -1 to 1."""
    image, grid = inputs[:2]
    most = float(
        _FURTHEST // max(size if isinstance(size, int) else _LONGEST for size in shape[2:])
    )
    dtype = str(grid.ty.dtype)
    low = bb.normalize(relax.op.maximum(grid, relax.const(-most, dtype)))
    return [image, bb.normalize(relax.op.minimum(low, relax.const(most, dtype)))]


class Scatter(onnx_frontend.OnnxOpConverter):
    """Scatter and ScatterElements: elements at computed places of one axis.

    TVM's own takes the extents of the other axes from the data; the indices may have smaller ones.
    """

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:  # noqa: ARG003
        data, places, updates = inputs
        what = f"an input of {known.name(attr)}"
        axis = int(attr.get("axis", 0)) % len(known.extents_of(data.ty, what))
        reduction = known.text(attr.get("reduction", b"none")).replace("none", "update")
        known.extents_of(places.ty, what)
        pairs = enumerate(zip(_sizes(data) or (), _sizes(places) or (), strict=True))
        if all(at == axis or structural_equal(*pair) for at, pair in pairs):
            return relax.op.scatter_elements(data, places, updates, axis, reduction)
        shape = known.sizes(data, what)
        given = (data, _flat(bb, places, shape, axis), updates)
        rows = [bb.normalize(relax.op.reshape(each, [-1])) for each in given]
        made = bb.normalize(relax.op.scatter_elements(*rows, 0, reduction))
        return relax.op.reshape(made, shape)


def _flat(bb: Any, places: Any, shape: list[int], axis: int) -> Any:
    """Return places of one axis as places in the whole tensor, counted through all of its axes."""
    strides = [math.prod(shape[at + 1 :]) for at in range(len(shape))]
    grid = np.indices(known.sizes(places, "indices"))
    start = sum(grid[at] * strides[at] for at in range(len(shape)) if at != axis)
    wide = bb.normalize(relax.op.astype(places, "int64"))
    negative = bb.normalize(relax.op.less(wide, relax.const(0, "int64")))
    counted = bb.normalize(relax.op.add(wide, relax.const(shape[axis], "int64")))
    wide = bb.normalize(relax.op.where(negative, counted, wide))
    steps = bb.normalize(relax.op.multiply(wide, relax.const(strides[axis], "int64")))
    return bb.normalize(relax.op.add(steps, relax.const(np.asarray(start), "int64")))


def _sizes(operand: Any) -> list[Any] | None:
    """Return the shape of a tensor, numbers where it is fixed; None where it is not known."""
    dims = getattr(getattr(operand.ty, "shape", None), "values", None)
    if dims is None:
        return None
    return [int(dim) if isinstance(dim, tirx.IntImm) else dim for dim in dims]


class Gather(onnx_frontend.Gather):
    """Gather; what lies at even places that are known is a slice, which other kernels take in.

    Example: x[:, 3] of [64, 26], a lookup of the third column, is x[:, 3:4] in another shape.
    """

    @classmethod
    def _impl_v13(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        axis, data = int(attr.get("axis", 0)), inputs[0]
        sizes = _sizes(data) if isinstance(data.ty, relax.TensorType) else None
        extent = sizes[axis] if sizes and not isinstance(data, GenericConst) else None
        places = known.values(inputs[1], params)
        even = _evenly(places, extent) if isinstance(extent, int) else None
        if places is None or even is None:
            return super()._impl_v13(bb, inputs, attr, params)
        (first, last, step), axes = even, [axis % data.ty.ndim]
        part = relax.op.strided_slice(data, axes, [first], [last + 1], [step])
        return part if places.ndim else relax.op.squeeze(bb.normalize(part), axes)


def _evenly(places: Any, extent: int) -> tuple[int, int, int] | None:
    """Return the first and last of places along an axis, and their distance, if that is one."""
    if places is None or places.ndim > 1 or places.size == 0:
        return None
    at = np.where(places < 0, places + extent, places).ravel()
    step = int(at[1] - at[0]) if at.size > 1 else 1
    even = step > 0 and bool((np.diff(at) == step).all())
    return (int(at[0]), int(at[-1]), step) if even else None


_CUT: Final = {
    "Gather": (Gather, _along),
    "GatherElements": (onnx_frontend.GatherElements, _along),
    "GatherND": (onnx_frontend.GatherND, _along_many),
    "GridSample": (onnx_frontend.GridSample, _near),
    "Scatter": (Scatter, _along),
    "ScatterElements": (Scatter, _along),
    "ScatterND": (onnx_frontend.ScatterND, _along_many),
}
_ALL: Final = {kind: _Cut(kind, *converter) for kind, converter in _CUT.items()}
CONVERTERS: Final = {**_ALL, "ScatterND": ScatteredRows(_ALL["ScatterND"])}
