"""Infer the type of equal calls of a convolution, a pooling or a resize once per process.

TVM parses the layouts of such a call each time, which takes 0.3 to 1 ms, five hundred times as
long as for other ops. A pass that rebuilds a call infers its type again: a graph of 4,000
convolutions spends a second per pass on it. So the function that infers the type is wrapped, in
TVM's op registry:

    conv2d(x, w)   is a Tensor((1, 8, 8, 16), "float32")   by TVM
    conv2d(y, v)   is one, too                             by the cache: equal up to variables
"""

from collections.abc import Callable, Sequence
from typing import Final

import tvm
import tvm_ffi
from tvm import relax, tirx

Inference = Callable[[relax.Call, relax.BlockBuilder], tvm.ir.Type]

_INFER: Final = "FInferType"
_LEVEL: Final = 11
"""Above that of TVM, which is 10."""

_SLOW: Final = (
    *(f"relax.nn.conv{n}d" for n in (1, 2, 3)),
    *(f"relax.nn.conv{n}d_transpose" for n in (1, 2, 3)),
    *(f"relax.nn.{kind}_pool{n}d" for kind in ("max", "avg", "adaptive_avg") for n in (1, 2, 3)),
    "relax.image.resize2d",
)
"""Ops with layouts."""

_MOST: Final = 4096
"""Largest number of cached calls; then the cache is cleared."""

Place = tuple[int, int]
"""An operand's index, and one of its axes."""


class _InferredTypes:
    """The cached types of the calls of one op."""

    def __init__(self, infer: Inference) -> None:
        self._infer = infer
        self._types: dict[int, tuple[relax.Call, tvm.ir.Type, list[Place | None]]] = {}
        """By hash: a call, its type, and the operand's axis that each size is taken from."""

    def infer_type(self, call: relax.Call, builder: relax.BlockBuilder) -> tvm.ir.Type:
        """Infer the type of a call, with sizes shared with its operands as by TVM."""
        operands = list(call.args)
        if not all(isinstance(operand, relax.Var | relax.ShapeExpr) for operand in operands):
            return self._infer(call, builder)
        key = tvm_ffi.structural_hash(call, map_free_vars=True)
        if (entry := self._types.get(key)) is not None:
            known_call, kind, places = entry
            if tvm_ffi.structural_equal(known_call, call, map_free_vars=True):
                return _write_type(kind, places, operands)
        kind = self._infer(call, builder)
        shapes = [_read_sizes(operand.ty, operand) for operand in operands]
        if None not in shapes and (sizes := _read_sizes(kind)) is not None:
            if len(self._types) == _MOST:
                self._types.clear()
            places = [_find_place(size, [shape or () for shape in shapes]) for size in sizes]
            # a copy, as TVM gives the call itself a type
            call_copy = relax.Call(call.op, operands, call.attrs, call.ty_args)
            self._types[key] = call_copy, kind, places
        return kind


def share_type_inference() -> None:
    """Register the cached type inference of these ops."""
    for name in _SLOW:
        op = tvm.ir.Op.get(name)
        op.set_attr(_INFER, _InferredTypes(op.get_attr(_INFER)).infer_type, _LEVEL)


def _write_type(
    kind: tvm.ir.Type, places: Sequence[Place | None], operands: Sequence[relax.Expr]
) -> tvm.ir.Type:
    """Copy a type, with sizes taken from the operands of a call."""
    operand_sizes = [_read_sizes(operand.ty, operand) or () for operand in operands]
    sizes = [
        tirx.IntImm("int64", int(size)) if place is None else operand_sizes[place[0]][place[1]]
        for size, place in zip(kind.shape.values, places, strict=True)
    ]
    return relax.TensorType(relax.ShapeExpr(sizes), kind.dtype)


def _find_place(size: tvm.ir.Expr, shapes: Sequence[Sequence[tvm.ir.Expr]]) -> Place | None:
    """Find the operand's axis that a size is taken from, None if it is computed."""
    for number, shape in enumerate(shapes):
        for axis, operand_size in enumerate(shape):
            if size.same_as(operand_size):
                return number, axis
    return None


def _read_sizes(kind: tvm.ir.Type, value: relax.Expr | None = None) -> Sequence[tvm.ir.Expr] | None:
    """Return the sizes of a tensor or of a shape; None if one is dynamic."""
    if isinstance(kind, relax.TensorType):
        value = None if kind.vdevice is not None else kind.shape
    if not isinstance(value, relax.ShapeExpr):
        return None
    sizes = list(value.values)
    return sizes if all(isinstance(size, tirx.IntImm) for size in sizes) else None
