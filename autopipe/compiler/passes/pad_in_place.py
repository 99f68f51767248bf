"""Remove the transposes around padding by padding the permuted axes.

TVM's layout conversion does not permute the axes of padding. The input of an int8 convolution with
a zero point other than 0 is padded by a separate op, so two transposes of the whole image are left
around it.

Example: x is [1, 112, 112, 16], channels last.

    permute(pad(permute(x, [0, 3, 1, 2]), [0, 0, 0, 0, 1, 1, 1, 1]), [0, 2, 3, 1])
    pad(x, [0, 0, 1, 1, 1, 1, 0, 0])
"""

from typing import Final

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from autopipe.compiler.graph.rewrite import rewrite_graph

_TRANSPOSE: Final = "relax.permute_dims"
PAD: Final = "relax.nn.pad"


def pad_in_place(module: tvm.IRModule) -> tvm.IRModule:
    """Replace transpose, padding and inverse transpose by padding of permuted axes."""
    return rewrite_graph(_TransposedPads(module), module)


@mutator
class _TransposedPads(PyExprMutator):
    """Removes the transposes around paddings."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        pad = self._find_producer(call, PAD) if getattr(call.op, "name", "") == _TRANSPOSE else None
        transpose = None if pad is None else self._find_producer(pad, _TRANSPOSE)
        if pad is None or transpose is None:
            return call
        after, before = _read_permutation(call), _read_permutation(transpose)
        if [before[axis] for axis in after] != list(range(len(after))):
            return call
        widths = list(map(int, pad.attrs.pad_width))
        permuted_widths = [width for axis in after for width in widths[2 * axis : 2 * axis + 2]]
        mode, value = str(pad.attrs.pad_mode), float(pad.attrs.pad_value)
        return relax.op.nn.pad(transpose.args[0], permuted_widths, pad_mode=mode, pad_value=value)

    def _find_producer(self, call: relax.Call, op: str) -> relax.Call | None:
        """Return the producer of the first argument of a call, if it is a call of `op`, or None."""
        (first, *_) = call.args
        producer = self.lookup_binding(first) if isinstance(first, relax.Var) else None
        is_match = isinstance(producer, relax.Call) and getattr(producer.op, "name", "") == op
        return producer if is_match else None


def _read_permutation(transpose: relax.Call) -> list[int]:
    """Return the operand's axis of each axis of a transpose."""
    rank = int(transpose.args[0].ty.ndim)
    if transpose.attrs.axes is None:
        return list(range(rank))[::-1]
    return [int(axis) % rank for axis in transpose.attrs.axes]
