"""Infer the type of equal calls of a convolution, a pooling or a resize once per process.

TVM parses the layouts of such a call each time, which takes 0.3 to 1 ms, five hundred times as
long as for other ops. A pass that rebuilds a call infers its type again: a graph of 4,000
convolutions spends a second per pass on it. So the function that infers the type is wrapped, in
TVM's op registry:

    conv2d(x, w)   is a Tensor((1, 8, 8, 16), "float32")   by TVM
    conv2d(y, v)   is one, too                             by the cache: equal up to variables
"""

from collections.abc import Callable
from typing import Final

import tvm
import tvm_ffi
from tvm import relax

from autopipe.compiler.graph.literals import has_static_sizes, is_static

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


class _InferredTypes:
    """The cached types of the calls of one op."""

    def __init__(self, infer: Inference) -> None:
        self._infer = infer
        self._types: dict[int, tuple[relax.Call, tvm.ir.Type]] = {}
        """By hash: a call, and its type."""

    def infer_type(self, call: relax.Call, builder: relax.BlockBuilder) -> tvm.ir.Type:
        """Infer the type of a call; equal calls of static shapes get the same object."""
        operands = list(call.args)
        if not all(isinstance(operand, relax.Var | relax.ShapeExpr) for operand in operands):
            return self._infer(call, builder)
        key = tvm_ffi.structural_hash(call, map_free_vars=True)
        if (entry := self._types.get(key)) is not None:
            known_call, kind = entry
            if tvm_ffi.structural_equal(known_call, call, map_free_vars=True):
                return kind
        kind = self._infer(call, builder)
        if all(map(is_static, operands)) and has_static_sizes(kind):
            if len(self._types) == _MOST:
                self._types.clear()
            # a copy, as TVM gives the call itself a type
            self._types[key] = relax.Call(call.op, operands, call.attrs, call.ty_args), kind
        return kind


def share_type_inference() -> None:
    """Register the cached type inference of these ops."""
    for name in _SLOW:
        op = tvm.ir.Op.get(name)
        op.set_attr(_INFER, _InferredTypes(op.get_attr(_INFER)).infer_type, _LEVEL)
