"""Legalizes equal calls of an op once in a pass, whatever tensors they are of.

TVM's `LegalizeOps` and `FoldConstant` write the loops of each call of a graph anew: 4,000 equal
convolutions are 4,000 times a tensor expression, and all kernels but one are thrown away. So the
function with which each op is legalized is wrapped, in TVM's registry of operators:

    conv2d(x, w)   is call_tir(@conv2d, (x, w), ty)   by TVM
    conv2d(y, v)   is call_tir(@conv2d, (y, v), ty)   as it is an equal call, but for its variables
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import tvm
import tvm_ffi
from tvm import relax

Legalization = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]

_LEGALIZE: Final = "FLegalize"
_LEVEL: Final = 12
"""Above those of TVM, which is 10, and of `compiler/arithmetic`."""

_only_constants: ContextVar[bool] = ContextVar("only_constants", default=False)
"""Whether calls of variables are left as they are."""


class _SharedCalls:
    """The calls that were legalized for one builder, whose module has their kernels."""

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self.builder = builder
        self._calls: dict[int, tuple[relax.Call, relax.Call, list[int]]] = {}
        """By hash: a call, what it became, and which of its operands the kernel takes, in order."""

    def find(self, call: relax.Call, key: int) -> relax.Call | None:
        """Return what a call is, if an equal one was legalized."""
        if key not in self._calls:
            return None
        other, legalized, places = self._calls[key]
        if not tvm_ffi.structural_equal(other, call, map_free_vars=True):
            return None
        operands = _flatten_tuples(call.args)
        replaced = relax.Tuple([operands[place] for place in places])
        kernel = legalized.args[0]
        return relax.Call(legalized.op, [kernel, replaced], legalized.attrs, legalized.ty_args)

    def add(self, call: relax.Call, key: int, legalized: relax.Expr) -> None:
        """Keep what a call is, if that is a kernel of nothing but the operands of the call."""
        if not isinstance(legalized, relax.Call):
            return
        if getattr(legalized.op, "name", "") != "relax.call_tir" or len(legalized.args) != 2:  # noqa: PLR2004
            return
        operands = list(map(_hash_reference, _flatten_tuples(call.args)))
        taken = list(map(_hash_reference, legalized.args[1].fields))
        if set(taken).issubset(operands):
            self._calls[key] = (call, legalized, list(map(operands.index, taken)))


_latest: list[_SharedCalls] = []
"""Those of the builder of the pass that runs; a pass has one for the whole module."""


def share_legalizations() -> None:
    """Have each op legalized once for equal calls. Ops that are registered later are left alone."""
    for name in tvm.ir.Op.list_op_names():
        op = tvm.ir.Op.get(name)
        if op.has_attr(_LEGALIZE) and (legalize := op.get_attr(_LEGALIZE)) is not None:
            op.set_attr(_LEGALIZE, _share_kernels(legalize), _LEVEL)


@contextmanager
def legalize_constants_only() -> Iterator[None]:
    """Leave calls of variables as they are, as `FoldConstant` cannot compute them."""
    token = _only_constants.set(True)
    try:
        yield
    finally:
        _only_constants.reset(token)


def _share_kernels(legalize: Legalization) -> Legalization:
    """Return a function that legalizes an op, and takes the kernels of equal calls."""

    def legalize_once(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if _only_constants.get() and any(
            isinstance(leaf, relax.Var) for leaf in _flatten_tuples(call.args)
        ):
            return call
        if not _latest or not _latest[0].builder.same_as(builder):
            _latest[:] = [_SharedCalls(builder)]
        shared, key = _latest[0], tvm_ffi.structural_hash(call, map_free_vars=True)
        if (known := shared.find(call, key)) is not None:
            return known
        legalized = legalize(builder, call)
        if all(map(_is_static, (call, *_flatten_tuples(call.args)))):
            shared.add(call, key, legalized)
        return legalized

    return legalize_once


def _flatten_tuples(arguments: Sequence[relax.Expr]) -> list[relax.Expr]:
    """Return arguments, and in place of tuples their fields."""
    leaves: list[relax.Expr] = []
    for argument in arguments:
        if isinstance(argument, relax.Tuple):
            leaves.extend(_flatten_tuples(argument.fields))
        else:
            leaves.append(argument)
    return leaves


def _is_static(value: relax.Expr) -> bool:
    """Tell whether a value is a tensor, or several, of constant sizes, or is itself constant."""
    if isinstance(value, relax.ShapeExpr):
        return all(isinstance(size, tvm.tirx.IntImm) for size in value.values)
    if isinstance(value.ty, relax.TensorType | relax.TupleType):
        return _has_static_sizes(value.ty)
    return not isinstance(value, relax.Var)


def _has_static_sizes(ty: tvm.ir.Type) -> bool:
    if isinstance(ty, relax.TupleType):
        return all(map(_has_static_sizes, ty.fields))
    shape = ty.shape if isinstance(ty, relax.TensorType) else None
    return isinstance(shape, relax.ShapeExpr) and _is_static(shape)


def _hash_reference(value: relax.Expr) -> int:
    """Return a number that two references to one expression have in common."""
    return hash(value)
