"""Legalize Relax ops to PrimFuncs, for tuning, build and the work on weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import tvm
from tvm import relax
from tvm.relax import backend, transform

from autopipe.compiler.arithmetic import (  # noqa: F401 - they register legalizations of ops
    extremes,
    filling,
    float_order,
    integer_division,
    wrapping_integers,
)
from autopipe.compiler.graph import split_resize
from autopipe.compiler.graph.calls import graph_functions, list_bindings
from autopipe.compiler.graph.contents import list_contents
from autopipe.compiler.graph.shared_legalization import share_legalizations
from autopipe.errors import ModelError

_OF_SHAPES: Final = frozenset({"shape_of", "tensor_to_shape"})
"""Ops of the virtual machine itself: they query sizes and compute nothing."""

DISPATCHED: Final = frozenset({
    "relax.argsort", "relax.bucketize", "relax.cumprod", "relax.cumsum",
    "relax.multinomial_from_uniform", "relax.sort", "relax.topk",
})  # fmt: skip
"""Ops with implementations by target, which two passes of TVM insert."""

_GIVES_UP: Final = "TVM cannot compute an op as this model uses it"

share_legalizations()  # including those that the modules of `arithmetic` registered


def legalize_ops(module: tvm.IRModule) -> tvm.IRModule:
    """Legalize the ops of a module to calls of PrimFuncs, for the current target of TVM.

    Raises ModelError if TVM's code for an op is broken, as for `nn.pixel_shuffle`.
    """
    passes = [transform.LegalizeOps({split_resize.RESIZE: split_resize.legalize_resize})]
    if not list_contents(module).isdisjoint(DISPATCHED):  # `LegalizeOps` skips these
        passes = [backend.DispatchSampling(), backend.DispatchSortScan(), *passes]
    sequence = tvm.transform.Sequential(passes)
    try:
        return sequence(module)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelError(f"{_GIVES_UP}: {type(error).__name__}: {error}") from error


@contextmanager
def raise_model_errors() -> Iterator[None]:
    """Raise ModelError if TVM fails on an op, such as `max` of boolean values."""
    try:
        yield
    except tvm.error.InternalError as error:
        reason = str(error).strip().splitlines()[-1]
        raise ModelError(f"{_GIVES_UP}: {reason}") from error


def list_unlegalized_ops(module: tvm.IRModule) -> list[str]:
    """List the ops that were not legalized although TVM has a legalization."""
    functions = (function for _, function in graph_functions(module))
    calls = (binding.value for function in functions for binding in list_bindings(function))
    ops = {call.op for call in calls if isinstance(call, relax.Call)}
    names = (op.name for op in ops if isinstance(op, tvm.ir.Op) and op.has_attr("FLegalize"))
    op_names = {name.removeprefix("relax.") for name in names if "relax.call_" not in name}
    return sorted(op_names - _OF_SHAPES)
