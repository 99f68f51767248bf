"""Convert Loop to private functions that call each other.

Relax has no loop, and a recursive function would need a frame of the virtual machine for each
round. Instead each function of a chain calls the previous one several times: with `body` as one
round, one function calls `body` eight times, the next calls that one eight times, and so on.
The number of frames is logarithmic in the number of rounds.

A constant trip count is written in base 8, and its digits select the calls. A trip count that is
computed before the first round calls the same functions, with a counter of remaining rounds. If
each round computes the condition, each function returns as soon as the condition, the first value
that a round returns, is false.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import tvm_ffi
from tvm import relax
from tvm.ir import Expr, GlobalVar, Type

from autopipe.compiler.frontends.bounds import BOUNDS
from autopipe.compiler.frontends.onnx.control.functions import Around, describe_type, make_scalar
from autopipe.compiler.frontends.onnx.control.round_calls import (
    Calls,
    RoundResults,
    Steps,
    Values,
    as_many,
    read_number,
    while_true,
)
from autopipe.compiler.frontends.onnx.control.trips import Trips, find_trips
from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.reading.tensors import count_uses
from autopipe.compiler.graph.calls import COMPUTED
from autopipe.errors import ModelError

_FAN: Final = 8
"""Calls of the previous function in each function of a chain."""

_LEVELS: Final = 14
"""Functions in a chain of unknown trip count, enough for 4e12 rounds."""


def convert_loop(site: NodeSite) -> Expr:
    """Convert a Loop and return its outputs.

    Raises ModelError for an endless loop, for states that change their shape, and for stacked
    outputs of data-dependent length.
    """
    label, body = site.label, site.attr["body"]
    limit, condition = site.find_input(0), site.find_input(1)
    surroundings = Around.of([body], site.params[0])
    numbers = ((name, read_number(value)) for name, value in surroundings.constants.items())
    constants = {name: np.asarray(number) for name, number in numbers if number is not None}
    starts = True if condition is None else read_number(condition)
    most = read_number(limit)
    trips = find_trips(
        label,
        (limit is not None, None if most is None else int(most)),
        body,
        constants,
        starts=None if starts is None else bool(starts),
    )
    loop = _Loop(site, surroundings)
    if trips.exactly is not None:
        outputs = loop.counted(trips.exactly)
    elif limit is not None and trips.bounded and trips.goes_on:
        outputs = loop.numbered(limit, condition)
    else:
        outputs = loop.watched(trips, limit, condition)
    return outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)


class _Loop:
    """A loop with one private function for a round."""

    def __init__(self, site: NodeSite, around: Around) -> None:
        self._functions, self._builder, self._label = site.functions, site.bb, site.label
        self._body, self._surroundings, self._opset = site.attr["body"], around, site.opset
        self._outputs, states = site.output_count, list(site.inputs)[2:]
        body = self._body
        self._states: list[Expr] = []
        for value, state in zip(body.input[2:], states, strict=True):
            if state is None:
                raise ModelError(f"{self._label} is not given its state {value.name!r}")
            operand_facts.require_type_shape(state.ty, f"state {value.name!r} of {self._label}")
            self._states.append(state)
        self._names = [value.name for value in body.input[2:]]
        self._is_counted = count_uses(body)[body.input[0].name] > 0
        self._invariants = list(around.values)
        self._invariant_names = list(around.names)

    def counted(self, count: int) -> list[Expr]:
        """Convert a loop of `count` rounds."""
        stack_count = len(self._body.output) - 1 - len(self._states)
        if count == 0:
            if stack_count:
                raise ModelError(f"{self._label} does not run, so that an output of it is empty")
            return self._states

        body = self._add_round(lambda _, number, __, states, rows: [*number, *states, *rows])
        self._check_size(count, body.ty.ret.fields[len(body.ty.ret.fields) - stack_count :])
        chain = [body]
        while _FAN ** len(chain) <= count:
            last = chain[-1]
            chain.append(self._add_function([last] * _FAN, self._emit_counted_calls))
        steps = [
            chain[level]
            for level in reversed(range(len(chain)))
            for _ in range(count // _FAN**level % (_FAN if level + 1 < len(chain) else count + 1))
        ]
        arguments = [*self._list_initial(), *self._states]
        results = self._emit_counted_calls(self._builder, steps, arguments, self._invariants)
        return results[len(arguments) - len(self._states) :]

    def numbered(self, limit: Expr, condition: Expr | None) -> list[Expr]:
        """Convert a loop with a trip count that is computed before the first round."""
        self._check_outputs()
        rounds = make_scalar(self._builder, limit, "int64")
        if condition is not None:
            starts = make_scalar(self._builder, condition, "bool")
            none = relax.const(0, "int64")
            rounds = self._builder.normalize(relax.op.where(starts, rounds, none))
        chain = [self._add_round(lambda _, number, __, states, ___: [*number, *states])]
        while len(chain) < _LEVELS:
            chain.append(self._add_function([chain[-1]] * _FAN, self._emit_counted_calls))
            self._functions.mark(chain[-1], COMPUTED)
        level = self._add_level(chain[-1], _FAN ** (_LEVELS - 1), None)
        for rank in reversed(range(_LEVELS - 1)):
            level = self._add_level(chain[rank], _FAN**rank, level)
        arguments = [rounds, *self._list_initial(), *self._states]
        return self._call_loop(level, arguments)

    def _add_level(self, chunk: GlobalVar, rounds: int, above: GlobalVar | None) -> GlobalVar:
        """Add the function that calls `chunk`, a function of `rounds` rounds, up to 7 times.

        Before that it calls `above` if enough rounds remain.
        """

        def step(
            builder: BlockBuilder, _: Steps, changing: Values, invariants: Values
        ) -> list[Expr]:
            results = self._emit_counted_calls(builder, [chunk], changing[1:], invariants)
            left = builder.normalize(relax.op.subtract(changing[0], relax.const(rounds, "int64")))
            return [as_many(builder, left, rounds), left, *results]

        def calls(
            builder: BlockBuilder, _: Steps, changing: Values, invariants: Values
        ) -> list[Expr]:
            result: Expr = relax.Tuple(changing)
            if above is not None:
                upper_calls = relax.SeqExpr([], relax.Call(above, [*changing, *invariants]))
                is_enough = as_many(builder, changing[0], rounds * _FAN)
                result = builder.emit(relax.If(is_enough, upper_calls, relax.SeqExpr([], result)))
                changing = [
                    builder.emit(relax.TupleGetItem(result, at)) for at in range(len(changing))
                ]
            has_rounds = as_many(builder, changing[0], rounds)
            repeated_calls = while_true(builder, [step_function] * (_FAN - 1), changing, invariants)
            fallback = relax.SeqExpr([], relax.Tuple([has_rounds, *changing]))
            result = builder.emit(relax.If(has_rounds, repeated_calls, fallback))
            return [builder.emit(relax.TupleGetItem(result, at + 1)) for at in range(len(changing))]

        left = [relax.Var("left", relax.TensorType((), "int64"))]
        step_function = self._add_function([], step, left, pure=True)
        return self._add_function([], calls, left)

    def watched(self, trips: Trips, limit: Expr | None, condition: Expr | None) -> list[Expr]:
        """Convert a loop with a condition that is computed in each round."""
        self._check_outputs()
        goes_on: Expr = relax.const(True, "bool")  # noqa: FBT003 - a value
        if condition is not None:
            goes_on = make_scalar(self._builder, condition, "bool")
        if limit is not None and trips.bounded:
            self._is_counted = True
            limit = make_scalar(self._builder, limit, "int64")
            self._invariants.insert(0, limit)
            self._invariant_names.insert(0, "limit")
            has_rounds = self._builder.normalize(relax.op.less(relax.const(0, "int64"), limit))
            goes_on = self._builder.normalize(relax.op.logical_and(goes_on, has_rounds))

        def combine_results(
            builder: BlockBuilder,
            number: list[Expr],
            go: Expr,
            states: list[Expr],
            _: list[Expr],
        ) -> list[Expr]:
            if trips.bounded:
                below = builder.normalize(relax.op.less(number[0], self._limit))
                go = below if trips.goes_on else builder.normalize(relax.op.logical_and(go, below))
            return [go, *number, *states]

        chain = [self._add_round(combine_results, bounded=trips.bounded)]
        capacity = 1
        while len(chain) < _LEVELS and (trips.most is None or capacity < trips.most):
            capacity += _FAN ** len(chain)
            last = chain[-1]
            chain.append(self._add_function([last] * _FAN, self._emit_while_true))
        arguments = [goes_on, *self._list_initial(), *self._states]
        loop = self._add_function(chain, self._emit_if_started, [relax.Var("goes_on", goes_on.ty)])
        return self._call_loop(loop, arguments)

    def _call_loop(self, loop: GlobalVar, arguments: Sequence[Expr]) -> list[Expr]:
        """Call the function of a loop and return the states, its last results."""
        result = self._builder.emit(relax.Call(loop, [*arguments, *self._invariants]))
        count = len(arguments)
        return [
            self._builder.emit(relax.TupleGetItem(result, at))
            for at in range(count - len(self._states), count)
        ]

    def _list_initial(self) -> list[Expr]:
        return [relax.const(0, "int64")] if self._is_counted else []

    def _make_params(self) -> list[relax.Var]:
        """Create variables for the counter and the states."""
        number = [relax.Var("number", relax.TensorType((), "int64"))] if self._is_counted else []
        states = zip(self._names, self._states, strict=True)
        return [*number, *(relax.Var(name, state.ty) for name, state in states)]

    def _make_invariants(self) -> list[relax.Var]:
        """Create variables for the loop invariants."""
        pairs = zip(self._invariant_names, self._invariants, strict=True)
        return [relax.Var(name, value.ty) for name, value in pairs]

    def _add_round(self, results: RoundResults, *, bounded: bool = False) -> GlobalVar:
        """Add the function of one round.

        `results` maps the next round number, the condition, states and rows to the returned values.
        """
        changing, invariants = self._make_params(), self._make_invariants()
        number = changing[: len(changing) - len(self._states)]
        self._limit = invariants[0] if bounded else None

        def finish_round(builder: BlockBuilder, outputs: list[Expr]) -> list[Expr]:
            go, values = make_scalar(builder, outputs[0], "bool"), outputs[1:]
            states, rows = values[: len(self._states)], values[len(self._states) :]
            self._check_states(states)
            after = [builder.normalize(relax.op.add(n, relax.const(1, "int64"))) for n in number]
            wide = [builder.normalize(relax.op.expand_dims(row, 0)) for row in rows]
            return results(builder, after, go, states, wide)

        number_name, condition_name = (value.name for value in self._body.input[:2])
        true = relax.const(True, "bool")  # noqa: FBT003 - a value: else there would be no round
        bindings = self._surroundings.given(invariants[bounded:])
        bindings |= dict(zip(self._names, changing[len(number) :], strict=True))
        bindings |= {
            condition_name: true,
            number_name: number[0] if number else relax.const(0, "int64"),
        }
        params = [*changing, *invariants]
        return self._functions.body(self._body, params, bindings, self._opset, finish_round)

    def _add_function(
        self,
        steps: Steps,
        calls: Calls,
        before: Sequence[relax.Var] = (),
        *,
        pure: bool = False,
    ) -> GlobalVar:
        """Add a function that calls `steps` in order."""
        changing, invariants = [*before, *self._make_params()], self._make_invariants()
        pure = pure or calls == self._emit_counted_calls

        def emit(builder: BlockBuilder) -> Expr:
            results = calls(builder, steps, changing, invariants)
            return relax.Tuple(results) if isinstance(results, list) else results

        return self._functions.add("rounds", [*changing, *invariants], emit, pure=pure)

    def _emit_counted_calls(
        self, builder: BlockBuilder, steps: Steps, changing: Values, invariants: Values
    ) -> list[Expr]:
        """Call functions in order and concatenate their rows."""
        rows: list[list[Expr]] = []
        for step in steps:
            result = builder.emit(relax.Call(step, [*changing, *invariants]))
            parts = [
                builder.emit(relax.TupleGetItem(result, at)) for at in range(len(result.ty.fields))
            ]
            changing, new_rows = parts[: len(changing)], parts[len(changing) :]
            rows = rows or [[] for _ in new_rows]
            for row, part in zip(rows, new_rows, strict=True):
                row.append(part)
        stacks = [r[0] if len(r) == 1 else builder.emit(relax.op.concat(r, 0)) for r in rows]
        return [*changing, *stacks]

    def _emit_while_true(
        self, builder: BlockBuilder, steps: Steps, changing: Values, invariants: Values
    ) -> Expr:
        """Call functions in order while the condition is true."""
        sequence = while_true(builder, list(steps), changing, invariants)
        for block in sequence.blocks:
            for binding in block.bindings:
                builder.emit_normalized(binding)
        return sequence.body

    def _emit_if_started(
        self, builder: BlockBuilder, steps: Steps, changing: Values, invariants: Values
    ) -> Expr:
        """Call functions in order while the condition is true, which is tested first."""
        calls = while_true(builder, list(steps), changing[1:], invariants)
        return builder.emit(relax.If(changing[0], calls, relax.SeqExpr([], relax.Tuple(changing))))

    def _check_outputs(self) -> None:
        stack_count = self._outputs - len(self._states)
        if stack_count > 0:
            raise ModelError(
                f"how often {self._label} runs is not known before the model runs, nor how long "
                f"the last {stack_count} of its outputs are; give it a constant number of "
                "rounds, or use its states alone"
            )

    def _check_states(self, states: Sequence[Expr]) -> None:
        for name, before, after in zip(self._names, self._states, states, strict=True):
            if not tvm_ffi.structural_equal(before.ty, after.ty):
                raise ModelError(
                    f"state {name!r} of {self._label} is {describe_type(before.ty)} and comes out "
                    f"as {describe_type(after.ty)}; a state has to keep its shape and type, unless "
                    "the loop runs a few times that are known before the model runs"
                )

    def _check_size(self, count: int, rows: Sequence[Type]) -> None:
        for kind in rows:
            size = (
                int(np.prod(operand_facts.require_type_shape(kind, "a row"), dtype=object))
                * np.dtype(str(kind.dtype)).itemsize
            )
            if count * size > BOUNDS.alive:
                raise ModelError(
                    f"{self._label} stacks {count} rows of {size} bytes, more than "
                    f"{BOUNDS.alive >> 20} MiB"
                )
