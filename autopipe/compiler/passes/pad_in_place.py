"""Pads what lies as it should, where a model turns it, pads it and turns it back.

TVM's conversion of layouts takes padding along no other axes than a model names. A convolution of
bytes whose zero is no 0 is padded by an operator of its own, so two transposes of the whole image
are left around that.

Example: x is [1, 112, 112, 16], channels last.

    permute(pad(permute(x, [0, 3, 1, 2]), [0, 0, 0, 0, 1, 1, 1, 1]), [0, 2, 3, 1])
    pad(x, [0, 0, 1, 1, 1, 1, 0, 0])
"""

from typing import Final

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from autopipe.compiler.graph.rewrite import rewrite_graph

_TURN: Final = "relax.permute_dims"
PAD: Final = "relax.nn.pad"


def pad_in_place(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module with padding along the axes that what is padded has."""
    return rewrite_graph(_TurnedPads(module), module)


@mutator
class _TurnedPads(PyExprMutator):
    """Takes the transposes around paddings away."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        pad = self._find_producer(call, PAD) if getattr(call.op, "name", "") == _TURN else None
        turn = None if pad is None else self._find_producer(pad, _TURN)
        if pad is None or turn is None:
            return call
        after, before = _read_permutation(call), _read_permutation(turn)
        if [before[axis] for axis in after] != list(range(len(after))):
            return call
        widths = list(map(int, pad.attrs.pad_width))
        moved = [width for axis in after for width in widths[2 * axis : 2 * axis + 2]]
        mode, value = str(pad.attrs.pad_mode), float(pad.attrs.pad_value)
        return relax.op.nn.pad(turn.args[0], moved, pad_mode=mode, pad_value=value)

    def _find_producer(self, call: relax.Call, op: str) -> relax.Call | None:
        """Return what makes the first argument of a call, if it is a call of `op`."""
        (first, *_) = call.args
        made = self.lookup_binding(first) if isinstance(first, relax.Var) else None
        found = isinstance(made, relax.Call) and getattr(made.op, "name", "") == op
        return made if found else None


def _read_permutation(turn: relax.Call) -> list[int]:
    """Return which axis of its argument each axis of a transpose is."""
    rank = int(turn.args[0].ty.ndim)
    if turn.attrs.axes is None:
        return list(range(rank))[::-1]
    return [int(axis) % rank for axis in turn.attrs.axes]
