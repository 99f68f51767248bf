"""The element-wise arithmetic of recurrent cells.

A step has one or two phases. Each multiplies a state with the recurrent weights of some gates, and
writes states from the sums. A GRU that resets its state before the matmul has two: the operand of
its last gate depends on the reset gate.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from tvm import tirx
from tvm.ir import Expr

from autopipe.compiler.graph.arithmetic import build_let
from autopipe.compiler.recurrence.form import Activation, Recurrence


class CellScope(Protocol):
    """The values of one hidden unit in one step."""

    def total(self, gate: int) -> Expr:
        """Return the sum of a gate."""

    def entry(self, gate: int) -> Expr:
        """Return the contribution of the input to a gate."""

    def state(self, name: str) -> Expr:
        """Return the current value of a state: from before the step, or of an earlier write."""

    def peephole(self, gate: int) -> Expr:
        """Return the weight between the cell and a gate."""


@dataclass(frozen=True, slots=True)
class Write:
    """An assignment to a state."""

    target: str
    """`h`, `c`, or a temporary of the step."""
    value: Callable[[CellScope], Expr]


@dataclass(frozen=True, slots=True)
class Phase:
    """A matmul of a state with recurrent weights, and the states written from it."""

    source: str
    """The state that is the operand of the matmul."""
    gates: tuple[int, ...]
    """The gates that are computed."""
    writes: tuple[Write, ...]
    """In order; a later one reads the results of earlier ones."""
    without: frozenset[int] = frozenset()
    """Gates with sums that begin with the recurrent bias, not with the input's contribution."""


_Function = Callable[[Expr], Expr]


def list_phases(form: Recurrence, direction: int) -> tuple[Phase, ...]:
    """Return the phases of a step."""
    functions = [
        partial(_apply_activation, function) for function in form.directions[direction].activations
    ]
    return _CELLS[form.kind](form, functions)


def _build_lstm(form: Recurrence, functions: Sequence[_Function]) -> tuple[Phase, ...]:
    f, g, h = functions
    at_input, at_output, at_forget, at_cell = range(4)

    def gate(scope: CellScope, which: int) -> Expr:
        total = scope.total(which)
        if form.peepholes:
            total = total + scope.peephole(which) * scope.state("c")
        return f(_clip_value(form, total))

    def cell(scope: CellScope) -> Expr:
        old, block = scope.state("c"), g(_clip_value(form, scope.total(at_cell)))
        if form.coupled:
            return build_let(gate(scope, at_input), lambda i: (1 - i) * old + i * block)
        return gate(scope, at_forget) * old + gate(scope, at_input) * block

    def hidden(scope: CellScope) -> Expr:
        return gate(scope, at_output) * h(scope.state("c"))

    return (Phase("h", (0, 1, 2, 3), (Write("c", cell), Write("h", hidden))),)


def _build_gru(form: Recurrence, functions: Sequence[_Function]) -> tuple[Phase, ...]:
    f, g = functions
    at_update, at_reset, at_hidden = range(3)

    def update(scope: CellScope) -> Expr:
        return f(_clip_value(form, scope.total(at_update)))

    def reset(scope: CellScope) -> Expr:
        return f(_clip_value(form, scope.total(at_reset)))

    def mixed(scope: CellScope, z: Expr, new: Expr) -> Expr:
        return build_let(z, lambda z: (1 - z) * g(_clip_value(form, new)) + z * scope.state("h"))

    if form.reset_after:

        def after(scope: CellScope) -> Expr:
            new = scope.entry(at_hidden) + reset(scope) * scope.total(at_hidden)
            return mixed(scope, update(scope), new)

        return (Phase("h", (0, 1, 2), (Write("h", after),), frozenset({at_hidden})),)

    def before(scope: CellScope) -> Expr:
        return reset(scope) * scope.state("h")

    def hidden(scope: CellScope) -> Expr:
        return mixed(scope, scope.state("update"), scope.total(at_hidden))

    gates = (Write("update", update), Write("reset", before))
    return (
        Phase("h", (at_update, at_reset), gates),
        Phase("reset", (at_hidden,), (Write("h", hidden),)),
    )


def _build_rnn(form: Recurrence, functions: Sequence[_Function]) -> tuple[Phase, ...]:
    (f,) = functions
    return (Phase("h", (0,), (Write("h", lambda scope: f(_clip_value(form, scope.total(0)))),)),)


_CELLS: Final[Mapping[str, Callable[[Recurrence, Sequence[_Function]], tuple[Phase, ...]]]] = {
    "LSTM": _build_lstm,
    "GRU": _build_gru,
    "RNN": _build_rnn,
}


def _clip_value(form: Recurrence, value: Expr) -> Expr:
    if form.clip is None:
        return value
    most = tirx.const(form.clip, form.dtype)
    return tirx.max(tirx.min(value, most), -most)


def _apply_activation(function: Activation, value: Expr) -> Expr:
    alpha, beta = (tirx.const(parameter, value.ty) for parameter in (function.alpha, function.beta))
    zero, unit = (tirx.const(constant, value.ty) for constant in (0, 1))

    def sloped(x: Expr) -> Expr:
        return tirx.Select(x >= zero, x, alpha * x)

    def threshold(x: Expr) -> Expr:
        return tirx.Select(x > alpha, x, zero)

    def elu(x: Expr) -> Expr:
        return tirx.Select(x >= zero, x, alpha * (tirx.exp(x) - unit))

    def softplus(x: Expr) -> Expr:
        return tirx.max(x, zero) + tirx.log(unit + tirx.exp(-tirx.abs(x)))

    functions: Mapping[str, _Function] = {
        "affine": lambda x: alpha * x + beta,
        "elu": elu,
        "hardsigmoid": lambda x: tirx.max(tirx.min(alpha * x + beta, unit), zero),
        "leakyrelu": sloped,
        "relu": lambda x: tirx.max(x, zero),
        "scaledtanh": lambda x: alpha * tirx.tanh(beta * x),
        "sigmoid": tirx.sigmoid,
        "softplus": softplus,
        "softsign": lambda x: x / (unit + tirx.abs(x)),
        "tanh": tirx.tanh,
        "thresholdedrelu": threshold,
    }
    return build_let(value, functions[function.name])
