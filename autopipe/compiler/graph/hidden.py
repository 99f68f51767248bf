"""Hides some ops from TVM's layout conversion, because TVM's rules for them are wrong.

TVM converts each op by a rule for that op. Around an op that has no rule it keeps the original
layout. Some rules change the results of the model or raise an error. So the ops of these rules are
replaced by calls of unknown functions, which have no rule. After the conversion the ops are put
back.
"""

from collections.abc import Callable, Sequence
from typing import Final

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from autopipe.compiler.graph.rewrite import rewrite

_NAME: Final = "autopipe.hidden."
"""Beginning of the names of the functions that stand for hidden ops; a number follows."""


def _many_axes(call: relax.Call) -> bool:
    return len(call.attrs.axes) > 1


def _flat(call: relax.Call) -> bool:
    return call.attrs.axis is None


def _always(_: relax.Call) -> bool:
    return True


WRONG: Final[dict[str, Callable[[relax.Call], bool]]] = {
    # turns the axes, and not the scale and shift along them
    "relax.nn.layer_norm": _many_axes,
    "relax.nn.rms_norm": _many_axes,
    # goes through the elements in the order of the new layout
    "relax.repeat": _flat,
    # looks for a place among its inputs' axes that only its result has
    "relax.stack": _always,
}
"""Ops with a wrong rule, and a function that tells for which calls it is wrong."""


def hide(module: tvm.IRModule) -> tuple[tvm.IRModule, Sequence[relax.Call]]:
    """Return the module with wrongly converted ops of `main` hidden, and the hidden calls."""
    hiding = _Hide(module)
    return rewrite(hiding, module), hiding.calls


def show(module: tvm.IRModule, calls: Sequence[relax.Call]) -> tvm.IRModule:
    """Return the module with the ops that `hide` took out put back in their places."""
    return rewrite(_Show(module, calls), module)


@mutator
class _Hide(PyExprMutator):
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.calls: list[relax.Call] = []

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        made = self.visit_expr_post_order(call)
        wrong = WRONG.get(getattr(call.op, "name", ""))
        if wrong is None or not wrong(call):
            return made
        self.calls.append(call)
        name = f"{_NAME}{len(self.calls) - 1}"
        return relax.op.call_pure_packed(name, *made.args, ty_args=call.ty)


@mutator
class _Show(PyExprMutator):
    def __init__(self, module: tvm.IRModule, calls: Sequence[relax.Call]) -> None:
        super().__init__(module)
        self._calls = calls

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        first = call.args[0] if call.args else None
        if not isinstance(first, relax.ExternFunc) or not first.global_symbol.startswith(_NAME):
            return call
        hidden = self._calls[int(first.global_symbol.removeprefix(_NAME))]
        return relax.Call(hidden.op, call.args[1:], hidden.attrs)
