"""Converters of reductions: what they make of each element is left where no axis is reduced.

TVM's return the input as it is. Of integers, logarithms are not defined since opset 28.
"""

from functools import partial
from typing import Any, Final

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx import known
from autopipe.errors import ModelError

# ruff: noqa: ANN401  TVM's converters have no types

_SINCE: Final = (18, 13)
"""The definition with axes as an input, and the one with axes as an attribute."""


def _square(data: Any) -> Any:
    return relax.op.multiply(data, data)


_EACH: Final = {
    "ReduceL1": relax.op.abs,
    "ReduceL2": relax.op.abs,
    "ReduceSumSquare": _square,
    "ReduceLogSum": relax.op.log,
}
"""What is left of a reduction of one element."""
_LOGARITHMS: Final = ("ReduceLogSum", "ReduceLogSumExp")


def _reduction(converter: Any) -> Any:
    """Return TVM's converter, with what it leaves out."""
    kind = converter.__name__

    def convert(original: Any, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        dtype = str(inputs[0].ty.dtype)
        if kind in _LOGARITHMS and not dtype.startswith("float"):
            raise ModelError(f"{kind} {known.name(attr)} is of {dtype}: put a Cast to float before")
        if kind in _EACH and attr.get("noop_with_empty_axes", 0) and _is_of_none(inputs, params):
            return _EACH[kind](inputs[0])
        return original(bb, inputs, attr, params)

    found = [f"_impl_v{since}" for since in _SINCE if hasattr(converter, f"_impl_v{since}")]
    methods = {name: staticmethod(partial(convert, getattr(converter, name))) for name in found}
    return type(kind, (converter,), methods)


_REDUCTIONS = (
    onnx_frontend.ReduceL1,
    onnx_frontend.ReduceL2,
    onnx_frontend.ReduceSumSquare,
    onnx_frontend.ReduceLogSum,
    onnx_frontend.ReduceLogSumExp,
)
CONVERTERS: Final = {each.__name__: _reduction(each) for each in _REDUCTIONS}


def _is_of_none(inputs: Any, params: Any) -> bool:
    """Whether no axis is named."""
    axes = (*inputs, None)[1]
    if axes is None:
        return True
    return known.numbers(axes, params, "what says which axes are reduced").size == 0
