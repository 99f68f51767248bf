"""Rewrite the graph of a module: by a rule for its calls, or by a mutator."""

from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from autopipe.compiler.graph.calls import graph_functions


@dataclass(frozen=True, slots=True)
class CallSite:
    """A call whose operands were rewritten, where it is bound."""

    call: relax.Call
    """The call with the rewritten operands."""
    original: relax.Call
    builder: relax.BlockBuilder
    """The builder of the rewritten function."""

    @property
    def op(self) -> str:
        """The name of its op; "" for a call of a function."""
        return read_op_name(self.call)

    def emit(self, value: relax.Expr) -> relax.Var:
        """Bind a value before the call."""
        return self.builder.emit(value)

    def find_producer(self, value: relax.Expr, op: str) -> relax.Call | None:
        """Return the call of an op that an operand is bound to, or None."""
        producer = self.builder.lookup_binding(value) if isinstance(value, relax.Var) else None
        if isinstance(producer, relax.Call) and read_op_name(producer) == op:
            return producer
        return None


CallRule = Callable[[CallSite], relax.Expr]
"""Returns what replaces a call; `site.call` leaves it."""


def rewrite_calls(rule: CallRule, module: tvm.IRModule) -> tvm.IRModule:
    """Replace the calls in the graph of a module by a rule, each after its operands."""
    return rewrite_graph(_CallRewriter(module, rule), module)


def rewrite_graph(mutator: PyExprMutator, module: tvm.IRModule) -> tvm.IRModule:
    """Rewrite the graph of a module by a mutator, which was constructed with that module."""
    for variable, function in graph_functions(module):
        mutator.builder_.update_func(variable, mutator.visit_expr(function))
    return mutator.builder_.get()


def read_op_name(call: relax.Call) -> str:
    """Return the name of the op of a call; "" for a call of a function."""
    return str(getattr(call.op, "name", ""))


@mutator
class _CallRewriter(PyExprMutator):
    def __init__(self, module: tvm.IRModule, rule: CallRule) -> None:
        super().__init__(module)
        self._rule = rule

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        return self._rule(CallSite(self.visit_expr_post_order(call), call, self.builder_))
