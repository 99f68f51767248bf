"""Hide some ops from TVM's layout conversion, because TVM's rules for them are wrong or missing.

TVM converts each op by a rule for that op. Around an op that has no rule it keeps the original
layout. Some rules change the results of the model or raise an error. So the ops of these rules are
replaced by calls of unknown functions, which have no rule. After the conversion the ops are put
back.

`clip` and others have no rule, and would keep the original layout around them, though they work in
any. For the conversion each is replaced by another op, one with a rule; its constant operand is the
index of the replaced call.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import tvm
from tvm import relax

from autopipe.compiler.graph.contents import list_contents
from autopipe.compiler.graph.rewrite import CallSite, rewrite_calls

_NAME: Final = "autopipe.hidden."
"""Prefix of the names of the functions that replace hidden ops, before a number."""


def _has_many_axes(call: relax.Call) -> bool:
    return len(call.attrs.axes) > 1


def _has_no_axis(call: relax.Call) -> bool:
    return call.attrs.axis is None


def _is_any_call(_: relax.Call) -> bool:
    return True


WRONG: Final[dict[str, Callable[[relax.Call], bool]]] = {
    # permutes the axes, but not the scale and shift along them
    "relax.nn.layer_norm": _has_many_axes,
    "relax.nn.rms_norm": _has_many_axes,
    # visits the elements in the order of the new layout
    "relax.repeat": _has_no_axis,
    # looks up an axis of its result among the axes of its inputs
    "relax.stack": _is_any_call,
    # replaces other ops
    "relax.log_add_exp": _is_any_call,
}
"""Ops with a wrong rule, and a predicate of the calls for which it is wrong."""

_STAND_IN: Final = "relax.log_add_exp"
_ANY_LAYOUT: Final = frozenset({"relax.clip", "relax.nn.leakyrelu", "relax.nn.softplus"})
"""Elementwise ops without a rule."""
_NUMBERED: Final = frozenset({"float32", "float64"})
"""Dtypes in which the indices of all calls are exact."""


def hide_ops(module: tvm.IRModule) -> tuple[tvm.IRModule, Sequence[relax.Call]]:
    """Hide the ops that TVM converts wrongly; return the module and the hidden calls."""
    if list_contents(module).isdisjoint(_ANY_LAYOUT | WRONG.keys()):
        return module, ()
    calls: list[relax.Call] = []
    return rewrite_calls(partial(_hide_call, calls), module), calls


def restore_ops(module: tvm.IRModule, calls: Sequence[relax.Call]) -> tvm.IRModule:
    """Restore the ops that `hide_ops` replaced."""
    return rewrite_calls(partial(_restore_call, calls), module) if calls else module


def _hide_call(calls: list[relax.Call], site: CallSite) -> relax.Expr:
    """Replace a call that TVM converts wrongly, and add it to the hidden calls."""
    call = site.original
    if site.op in _ANY_LAYOUT and str(call.ty.dtype) in _NUMBERED:
        number = relax.const(len(calls), str(call.ty.dtype))
        calls.append(site.call)
        return relax.op.log_add_exp(site.call.args[0], number)
    wrong = WRONG.get(site.op)
    if wrong is None or not wrong(call):
        return site.call
    calls.append(call)
    name = f"{_NAME}{len(calls) - 1}"
    return relax.op.call_pure_packed(name, *site.call.args, ty_args=call.ty)


def _restore_call(calls: Sequence[relax.Call], site: CallSite) -> relax.Expr:
    call = site.call
    if site.op == _STAND_IN:
        replaced_call = calls[int(call.args[1].value.numpy())]
        operands = [call.args[0], *replaced_call.args[1:]]
        return relax.Call(replaced_call.op, operands, replaced_call.attrs)
    first = call.args[0] if call.args else None
    if not isinstance(first, relax.ExternFunc) or not first.global_symbol.startswith(_NAME):
        return call
    hidden_call = calls[int(first.global_symbol.removeprefix(_NAME))]
    return relax.Call(hidden_call.op, call.args[1:], hidden_call.attrs)
