"""Converters that take the place of TVM's own, where those import what optimizes badly.

TVM makes Clip a call of finished PrimFuncs, which no layout gets past, and Sum, Max and Min a
broadcast, a stack and a reduction, which move everything through memory. Its Size asks at run time
for a shape that is known, by an op that `LegalizeOps` has no PrimFunc for. Its OneHot forgets the
dtype of the two values.
"""

import contextlib
import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx import (
    activations,
    along,
    bits,
    casts,
    counted,
    elementwise,
    indices,
    integers,
    known,
    matrices,
    normalizing,
    padding,
    pooling,
    quantization,
    reductions,
    regions,
    resizing,
    slicing,
    windows,
)
from autopipe.compiler.frontends.onnx.control.converters import converters as of_control
from autopipe.compiler.frontends.onnx.converted_nodes import ConvertedNodes
from autopipe.compiler.frontends.onnx.named import named
from autopipe.compiler.frontends.onnx.one_hot import compute_one_hot
from autopipe.compiler.frontends.onnx.open.converters import opened
from autopipe.compiler.frontends.onnx.open.extents import Extents
from autopipe.compiler.frontends.onnx.recurrent import converters as recurrent
from autopipe.compiler.patches import replace_converters

# ruff: noqa: SLF001, ANN401  TVM's converters have no public interface, and no types


class _Clip(onnx_frontend.Clip):
    """Clip as a maximum and a minimum; a bound that is left out is the last number of the dtype."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:  # noqa: ARG003
        ends = np.finfo("float32")
        given = (attr.get("min", ends.min), attr.get("max", ends.max))
        return _clipped(bb, inputs[0], *(relax.const(bound, inputs[0].ty.dtype) for bound in given))

    @classmethod
    def _impl_v13(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        data, low, high = (*inputs, None, None)[:3]
        low, high = _number(low), _number(high)
        if str(data.ty.dtype).startswith("float"):  # integers have no infinities
            ends = np.finfo(str(data.ty.dtype))
            low = relax.const(ends.min, data.ty.dtype) if low is None else low
            high = relax.const(ends.max, data.ty.dtype) if high is None else high
        if _unusual(low) or _unusual(high):
            given = onnx_frontend.onnx_input([data, low, high])
            return super()._impl_v13(bb, given, attr, params)
        return _clipped(bb, data, low, high)


class _Constant(onnx_frontend.Constant):
    """Constant; one without elements is computed of an input: TVM's runtime does not load it."""

    @classmethod
    def _impl_v13(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        made = super()._impl_v13(bb, inputs, attr, params)
        array = made.value.numpy()
        if array.size:
            return made
        number = tirx.const(0, str(array.dtype))

        def nothing(_: Any) -> Any:
            return te.compute(array.shape, lambda *_: number, name="nothing")

        source = next(value for value in params[0].values() if isinstance(value, relax.Var))
        return bb.emit_te(nothing, source, primfunc_name_hint="nothing")


class _Size(onnx_frontend.Size):
    """Size as a number, where the shape is known."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        dims = getattr(inputs[0].ty.shape, "values", None)
        if dims is None or not all(isinstance(dim, tirx.IntImm) for dim in dims):
            return super()._impl_v1(bb, inputs, attr, params)
        return relax.const(math.prod(int(dim) for dim in dims), "int64")


class _OneHot(onnx_frontend.OneHot):
    """OneHot in the dtype of its values, its depth in any form."""

    @classmethod
    def _impl_v11(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        if not str(inputs[0].ty.dtype).startswith(("int", "uint")):
            places = bb.normalize(relax.op.astype(inputs[0], "int64"))
            inputs = onnx_frontend.onnx_input([places, *list(inputs)[1:]])
        # TVM's operator counts an axis below 0 from the end of the input, which has one axis less
        attr = {**attr, "axis": int(attr.get("axis", -1)) % (inputs[0].ty.ndim + 1)}
        depth = onnx_frontend.get_constant(inputs[1], params)
        if known.values(inputs[2], params) is None:
            return _chosen(bb, inputs, attr, params)
        if isinstance(depth, GenericConst):  # which may be a list of one number
            inputs = [inputs[0], relax.const(depth.value.numpy().item(), "int64"), inputs[2]]
        result = bb.normalize(super()._impl_v11(bb, inputs, attr, params))
        dtype = inputs[2].ty.dtype
        return result if result.ty.dtype == dtype else relax.op.astype(result, dtype)


def _chosen(bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
    """Return OneHot of two values that are computed."""
    what = f"OneHot {known.name(attr)}"
    depth = int(known.numbers(inputs[1], params, f"the depth of {what}").item())
    row = known.stored(np.arange(depth, dtype="int64"))
    return compute_one_hot(bb, inputs, attr, relax.const(depth, "int64"), row)


class _OptionalHasElement(onnx_frontend.OptionalHasElement):
    """OptionalHasElement, of nothing too."""

    @classmethod
    def _impl_v15(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        if not any(value is not None for value in inputs):
            return known.stored(np.zeros((), "bool"))
        return super()._impl_v15(bb, inputs, attr, params)

    _impl_v18 = _impl_v28 = _impl_v15


def _pairwise(converter: Any) -> Any:
    """Return a converter that applies TVM's operator to two inputs at a time."""

    def convert(bb: Any, inputs: Any, attr: Any, params: Any) -> Any:  # noqa: ARG001
        return converter._impl_dynamic(bb, list(inputs))

    return type(converter.__name__, (converter,), {"_impl_v1": staticmethod(convert)})


def _by_list(converter: Any) -> Any:
    """Return a converter of an axis, too, where TVM's takes a list of axes; onnxruntime does."""

    def convert(bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        axes = onnx_frontend.get_constant((*inputs, None)[1], params)
        if isinstance(axes, GenericConst) and axes.value.numpy().ndim == 0:
            listed = [inputs[0], known.stored(axes.value.numpy().reshape(1))]
            inputs = onnx_frontend.onnx_input(listed)
        return converter._impl_v13(bb, inputs, attr, params)

    return type(converter.__name__, (converter,), {"_impl_v13": staticmethod(convert)})


def _number(bound: Any) -> Any:
    """Return a bound that is known as a scalar; PaddlePaddle writes a list of one number."""
    if isinstance(bound, GenericConst) and bound.value.numpy().shape == (1,):
        return known.stored(bound.value.numpy().reshape(()))
    return bound


def _unusual(bound: Any) -> bool:
    """Whether a bound is computed, or is not a number, which onnxruntime takes for no bound."""
    if bound is None:
        return False
    return not isinstance(bound, GenericConst) or bool(np.isnan(bound.value.numpy()).any())


def _clipped(bb: Any, data: Any, low: Any, high: Any) -> Any:
    if low is not None:
        data = bb.normalize(relax.op.maximum(data, low))
    if high is not None:
        data = bb.normalize(relax.op.minimum(data, high))
    return data


_PAIRWISE = (onnx_frontend.Sum, onnx_frontend.Max, onnx_frontend.Min, onnx_frontend.Mean)
OURS: Final = {
    **integers.CONVERTERS,
    **quantization.CONVERTERS,
    **recurrent.CONVERTERS,
    **activations.CONVERTERS,
    **along.CONVERTERS,
    **bits.CONVERTERS,
    **casts.CONVERTERS,
    **indices.CONVERTERS,
    **counted.CONVERTERS,
    **matrices.CONVERTERS,
    **windows.CONVERTERS,
    **elementwise.CONVERTERS,
    **normalizing.CONVERTERS,
    **padding.CONVERTERS,
    **pooling.CONVERTERS,
    **reductions.CONVERTERS,
    **regions.CONVERTERS,
    **resizing.CONVERTERS,
    "Slice": slicing.Slice,
    "Clip": _Clip,
    "Constant": _Constant,
    "Size": _Size,
    "OneHot": _OneHot,
    "OptionalHasElement": _OptionalHasElement,
    **{each.__name__: _pairwise(each) for each in _PAIRWISE},
    **{each.__name__: _by_list(each) for each in (onnx_frontend.Squeeze, onnx_frontend.Unsqueeze)},
}


@contextlib.contextmanager
def replaced(
    extents: Extents | None = None, converted: ConvertedNodes | None = None
) -> Iterator[None]:
    """Have TVM's importer use these converters, and say which node fails.

    `extents` has what is known of open sizes; None where there are none. `converted` records what
    each node becomes.
    """
    converters = {**onnx_frontend._get_convert_map(), **OURS, **of_control()}
    converters = converters if extents is None else opened(converters, extents)
    with replace_converters(named(converters, converted or ConvertedNodes())):
        yield
