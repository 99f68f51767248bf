"""Infers the type of equal calls of a convolution, a pooling or a resize once in a process.

TVM reads the layouts of such a call anew each time, which takes 0.3 to 1 ms, five hundred times as
long as for other operators. A pass that writes a call anew has its type inferred anew: a graph of
4,000 convolutions spends a second a pass on it. So the function that infers the type is wrapped, in
TVM's registry of operators:

    conv2d(x, w)   is a Tensor((1, 8, 8, 16), "float32")   by TVM
    conv2d(y, v)   is one, too                             as it is an equal call, but for variables
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
"""Operators with layouts."""

_MOST: Final = 4096
"""Calls that are kept; then all are dropped."""

Place = tuple[int, int]
"""An operand by number, and one of its sizes."""


class _InferredTypes:
    """The types of the calls of one operator."""

    def __init__(self, infer: Inference) -> None:
        self._infer = infer
        self._types: dict[int, tuple[relax.Call, tvm.ir.Type, list[Place | None]]] = {}
        """By hash: a call, its type, and which size of an operand each of its sizes is."""

    def infer_type(self, call: relax.Call, builder: relax.BlockBuilder) -> tvm.ir.Type:
        """Return the type of a call, with the sizes of its operands as TVM takes them over."""
        operands = list(call.args)
        if not all(isinstance(one, relax.Var | relax.ShapeExpr) for one in operands):
            return self._infer(call, builder)
        key = tvm_ffi.structural_hash(call, map_free_vars=True)
        if (found := self._types.get(key)) is not None:
            other, kind, places = found
            if tvm_ffi.structural_equal(other, call, map_free_vars=True):
                return _write_type(kind, places, operands)
        kind = self._infer(call, builder)
        shapes = [_read_sizes(one.ty, one) for one in operands]
        if None not in shapes and (sizes := _read_sizes(kind)) is not None:
            if len(self._types) == _MOST:
                self._types.clear()
            places = [_find_place(size, [shape or () for shape in shapes]) for size in sizes]
            # a copy, as TVM gives the call itself a type
            kept = relax.Call(call.op, operands, call.attrs, call.ty_args)
            self._types[key] = kept, kind, places
        return kind


def share_type_inference() -> None:
    """Have the types of such operators inferred once for equal calls."""
    for name in _SLOW:
        op = tvm.ir.Op.get(name)
        op.set_attr(_INFER, _InferredTypes(op.get_attr(_INFER)).infer_type, _LEVEL)


def _write_type(
    kind: tvm.ir.Type, places: Sequence[Place | None], operands: Sequence[relax.Expr]
) -> tvm.ir.Type:
    """Return a type like another one, with sizes of these operands."""
    given = [_read_sizes(one.ty, one) or () for one in operands]
    sizes = [
        tirx.IntImm("int64", int(size)) if place is None else given[place[0]][place[1]]
        for size, place in zip(kind.shape.values, places, strict=True)
    ]
    return relax.TensorType(relax.ShapeExpr(sizes), kind.dtype)


def _find_place(size: tvm.ir.Expr, shapes: Sequence[Sequence[tvm.ir.Expr]]) -> Place | None:
    """Return which size of which operand a size is, None if it is computed."""
    for number, shape in enumerate(shapes):
        for axis, other in enumerate(shape):
            if size.same_as(other):
                return number, axis
    return None


def _read_sizes(kind: tvm.ir.Type, value: relax.Expr | None = None) -> Sequence[tvm.ir.Expr] | None:
    """Return the sizes of a tensor, or those that a shape has; None where one is no number."""
    if isinstance(kind, relax.TensorType):
        value = None if kind.vdevice is not None else kind.shape
    if not isinstance(value, relax.ShapeExpr):
        return None
    sizes = list(value.values)
    return sizes if all(isinstance(size, tirx.IntImm) for size in sizes) else None
