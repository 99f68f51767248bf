"""Loop as private functions that call each other.

Relax has no loop, and a function that calls itself would need a frame of the virtual machine for
each round. So a function of a chain calls the one before it several times: with `body` as one
round, one function calls `body` eight times, the next calls that one eight times, and so on.
However many rounds there are, frames are few.

Where the number of rounds is known, its digits to the base 8 say what is called. Where it is
computed before the first round, the same functions are called, and a number counts what is left.
Where each round says whether there is another one, each function stops as soon as the condition,
the first thing that a round returns, is false.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import tvm_ffi
from tvm import relax
from tvm.ir import Expr, GlobalVar, Type

from autopipe.compiler.frontends.bounds import BOUNDS
from autopipe.compiler.frontends.onnx.control.conditional_calls import as_many, while_true
from autopipe.compiler.frontends.onnx.control.functions import (
    Around,
    BodyFunctions,
    ControlSite,
    describe_type,
    make_scalar,
)
from autopipe.compiler.frontends.onnx.control.round_results import (
    Calls,
    RoundResults,
    Steps,
    read_number,
    return_all_but_condition,
    return_states,
)
from autopipe.compiler.frontends.onnx.control.trips import Trips, find_trips
from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    BlockBuilder,
    find_optional_input,
)
from autopipe.compiler.frontends.onnx.reading.tensors import count_uses
from autopipe.compiler.graph.calls import COMPUTED
from autopipe.errors import ModelError

_FAN: Final = 8
"""How often a function of a chain calls the one before it."""

_LEVELS: Final = 14
"""Functions of a chain without a known end, which is good for 4e12 rounds."""


def convert_loop(functions: BodyFunctions, site: ControlSite) -> Expr:
    """Return the outputs of a Loop.

    Raises ModelError for one without an end, for states that change their shape, and for outputs
    whose length is not known before the model runs.
    """
    what = f"Loop {site.name!r}"
    body = site.attributes["body"]
    limit, condition = find_optional_input(site.inputs, 0), find_optional_input(site.inputs, 1)
    around = Around.of([body], site.nodes)
    numbers = ((name, read_number(value)) for name, value in around.constants.items())
    constants = {name: np.asarray(number) for name, number in numbers if number is not None}
    starts = True if condition is None else read_number(condition)
    most = read_number(limit)
    found = find_trips(
        what,
        (limit is not None, None if most is None else int(most)),
        body,
        constants,
        starts=None if starts is None else bool(starts),
    )
    loop = _Loop(functions, site, around)
    if found.exactly is not None:
        outputs = loop.counted(found.exactly)
    elif limit is not None and found.bounded and found.goes_on:
        outputs = loop.numbered(limit, condition)
    else:
        outputs = loop.watched(found, limit, condition)
    return outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)


class _Loop:
    """A loop whose rounds are a function of their own."""

    def __init__(self, functions: BodyFunctions, site: ControlSite, around: Around) -> None:
        self._functions, self._builder, self._what = functions, site.builder, f"Loop {site.name!r}"
        self._body, self._around, self._opset = site.attributes["body"], around, site.opset
        self._outputs, states = site.outputs, site.inputs[2:]
        body = self._body
        self._states: list[Expr] = []
        for value, state in zip(body.input[2:], states, strict=True):
            if state is None:
                raise ModelError(f"{self._what} is not given its state {value.name!r}")
            operand_facts.require_type_shape(state.ty, f"state {value.name!r} of {self._what}")
            self._states.append(state)
        self._names = [value.name for value in body.input[2:]]
        self._is_counted = count_uses(body)[body.input[0].name] > 0
        self._invariants = list(around.values)
        self._invariant_names = list(around.names)

    def counted(self, count: int) -> list[Expr]:
        """Return the outputs of a loop that runs `count` times."""
        stacked = len(self._body.output) - 1 - len(self._states)
        if count == 0:
            if stacked:
                raise ModelError(f"{self._what} does not run, so that an output of it is empty")
            return self._states

        one = self._add_round(return_all_but_condition)
        self._check_size(count, one.ty.ret.fields[len(one.ty.ret.fields) - stacked :])
        chain = [one]
        while _FAN ** len(chain) <= count:
            last = chain[-1]
            chain.append(self._add_function([last] * _FAN, self._emit_counted_calls))
        steps = [
            chain[level]
            for level in reversed(range(len(chain)))
            for _ in range(count // _FAN**level % (_FAN if level + 1 < len(chain) else count + 1))
        ]
        given = [*self._list_initial(), *self._states]
        results = self._emit_counted_calls(self._builder, steps, given, self._invariants)
        return results[len(given) - len(self._states) :]

    def numbered(self, limit: Expr, condition: Expr | None) -> list[Expr]:
        """Return the outputs of a loop whose number of rounds is computed before the first."""
        self._check_outputs()
        left = make_scalar(self._builder, limit, "int64")
        if condition is not None:
            starts = make_scalar(self._builder, condition, "bool")
            none = relax.const(0, "int64")
            left = self._builder.normalize(relax.op.where(starts, left, none))
        chain = [self._add_round(return_states)]
        while len(chain) < _LEVELS:
            chain.append(self._add_function([chain[-1]] * _FAN, self._emit_counted_calls))
            self._functions.mark(chain[-1], COMPUTED)
        level = None
        for rank in reversed(range(_LEVELS)):
            level = self._add_level(chain[rank], _FAN**rank, level)
        given = [left, *self._list_initial(), *self._states]
        result = self._builder.emit(relax.Call(level, [*given, *self._invariants]))
        count = len(given)
        return [
            self._builder.emit(relax.TupleGetItem(result, at))
            for at in range(count - len(self._states), count)
        ]

    def _add_level(self, chunk: GlobalVar, rounds: int, above: GlobalVar | None) -> GlobalVar:
        """Add the function that calls `chunk`, which is so many rounds, up to 7 times.

        Before that it calls `above`, if as many rounds are left as that takes.
        """

        def step(
            builder: BlockBuilder, _: Steps, changing: Sequence[Expr], fixed: Sequence[Expr]
        ) -> list[Expr]:
            made = self._emit_counted_calls(builder, [chunk], changing[1:], fixed)
            left = builder.normalize(relax.op.subtract(changing[0], relax.const(rounds, "int64")))
            return [as_many(builder, left, rounds), left, *made]

        def calls(
            builder: BlockBuilder, _: Steps, changing: Sequence[Expr], fixed: Sequence[Expr]
        ) -> list[Expr]:
            result: Expr = relax.Tuple(changing)
            if above is not None:
                more = relax.SeqExpr([], relax.Call(above, [*changing, *fixed]))
                many = as_many(builder, changing[0], rounds * _FAN)
                result = builder.emit(relax.If(many, more, relax.SeqExpr([], result)))
                changing = [
                    builder.emit(relax.TupleGetItem(result, at)) for at in range(len(changing))
                ]
            some = as_many(builder, changing[0], rounds)
            called = while_true(builder, [one] * (_FAN - 1), changing, fixed)
            unchanged = relax.SeqExpr([], relax.Tuple([some, *changing]))
            result = builder.emit(relax.If(some, called, unchanged))
            return [builder.emit(relax.TupleGetItem(result, at + 1)) for at in range(len(changing))]

        left = [relax.Var("left", relax.TensorType((), "int64"))]
        one = self._add_function([], step, left, pure=True)
        return self._add_function([], calls, left)

    def watched(self, found: Trips, limit: Expr | None, condition: Expr | None) -> list[Expr]:
        """Return the outputs of a loop that runs as long as a condition holds."""
        self._check_outputs()
        goes: Expr = relax.const(True, "bool")  # noqa: FBT003 - a value
        if condition is not None:
            goes = make_scalar(self._builder, condition, "bool")
        if limit is not None and found.bounded:
            self._is_counted = True
            limit = make_scalar(self._builder, limit, "int64")
            self._invariants.insert(0, limit)
            self._invariant_names.insert(0, "limit")
            some = self._builder.normalize(relax.op.less(relax.const(0, "int64"), limit))
            goes = self._builder.normalize(relax.op.logical_and(goes, some))

        def finished(
            builder: BlockBuilder,
            number: list[Expr],
            go: Expr,
            states: list[Expr],
            _: list[Expr],
        ) -> list[Expr]:
            if found.bounded:
                more = builder.normalize(relax.op.less(number[0], self._limit))
                go = more if found.goes_on else builder.normalize(relax.op.logical_and(go, more))
            return [go, *number, *states]

        chain = [self._add_round(finished, bounded=found.bounded)]
        reached = 1
        while len(chain) < _LEVELS and (found.most is None or reached < found.most):
            reached += _FAN ** len(chain)
            last = chain[-1]
            chain.append(self._add_function([last] * _FAN, self._emit_while_true))
        given = [goes, *self._list_initial(), *self._states]
        whole = self._add_function(chain, self._emit_if_started, [relax.Var("goes_on", goes.ty)])
        result = self._builder.emit(relax.Call(whole, [*given, *self._invariants]))
        count = len(given)
        return [
            self._builder.emit(relax.TupleGetItem(result, at))
            for at in range(count - len(self._states), count)
        ]

    def _list_initial(self) -> list[Expr]:
        return [relax.const(0, "int64")] if self._is_counted else []

    def _make_params(self) -> list[relax.Var]:
        """Return new variables for what changes from round to round."""
        number = [relax.Var("number", relax.TensorType((), "int64"))] if self._is_counted else []
        states = zip(self._names, self._states, strict=True)
        return [*number, *(relax.Var(name, state.ty) for name, state in states)]

    def _make_invariants(self) -> list[relax.Var]:
        """Return new variables for what is the same in all rounds."""
        pairs = zip(self._invariant_names, self._invariants, strict=True)
        return [relax.Var(name, value.ty) for name, value in pairs]

    def _add_round(self, results: RoundResults, *, bounded: bool = False) -> GlobalVar:
        """Add the function of one round.

        `results` makes what it returns of the next number, the condition, states and rows.
        """
        changing, fixed = self._make_params(), self._make_invariants()
        number = changing[: len(changing) - len(self._states)]
        self._limit = fixed[0] if bounded else None

        def returned(builder: BlockBuilder, computed: list[Expr]) -> list[Expr]:
            go, rest = make_scalar(builder, computed[0], "bool"), computed[1:]
            states, rows = rest[: len(self._states)], rest[len(self._states) :]
            self._check_states(states)
            after = [builder.normalize(relax.op.add(n, relax.const(1, "int64"))) for n in number]
            wide = [builder.normalize(relax.op.expand_dims(row, 0)) for row in rows]
            return results(builder, after, go, states, wide)

        number_name, condition_name = (value.name for value in self._body.input[:2])
        true = relax.const(True, "bool")  # noqa: FBT003 - a value: else there would be no round
        given = self._around.given(fixed[bounded:])
        given |= dict(zip(self._names, changing[len(number) :], strict=True))
        given |= {
            condition_name: true,
            number_name: number[0] if number else relax.const(0, "int64"),
        }
        return self._functions.body(self._body, [*changing, *fixed], given, self._opset, returned)

    def _add_function(
        self,
        steps: Steps,
        calls: Calls,
        before: Sequence[relax.Var] = (),
        *,
        pure: bool = False,
    ) -> GlobalVar:
        """Add a function that calls others, one after the other."""
        changing, fixed = [*before, *self._make_params()], self._make_invariants()
        pure = pure or calls == self._emit_counted_calls

        def emit(builder: BlockBuilder) -> Expr:
            made = calls(builder, steps, changing, fixed)
            return relax.Tuple(made) if isinstance(made, list) else made

        return self._functions.add("rounds", [*changing, *fixed], emit, pure=pure)

    def _emit_counted_calls(
        self, builder: BlockBuilder, steps: Steps, changing: Sequence[Expr], fixed: Sequence[Expr]
    ) -> list[Expr]:
        """Call one function after the other; their rows become one tensor."""
        rows: list[list[Expr]] = []
        for step in steps:
            result = builder.emit(relax.Call(step, [*changing, *fixed]))
            parts = [
                builder.emit(relax.TupleGetItem(result, at)) for at in range(len(result.ty.fields))
            ]
            changing, made = parts[: len(changing)], parts[len(changing) :]
            rows = rows or [[] for _ in made]
            for row, part in zip(rows, made, strict=True):
                row.append(part)
        whole = [row[0] if len(row) == 1 else builder.emit(relax.op.concat(row, 0)) for row in rows]
        return [*changing, *whole]

    def _emit_while_true(
        self, builder: BlockBuilder, steps: Steps, changing: Sequence[Expr], fixed: Sequence[Expr]
    ) -> Expr:
        """Call one function after the other as long as the condition holds."""
        sequence = while_true(builder, list(steps), changing, fixed)
        for block in sequence.blocks:
            for binding in block.bindings:
                builder.emit_normalized(binding)
        return sequence.body

    def _emit_if_started(
        self, builder: BlockBuilder, steps: Steps, changing: Sequence[Expr], fixed: Sequence[Expr]
    ) -> Expr:
        """The same, if the condition holds at all."""
        started = while_true(builder, list(steps), changing[1:], fixed)
        return builder.emit(
            relax.If(changing[0], started, relax.SeqExpr([], relax.Tuple(changing)))
        )

    def _check_outputs(self) -> None:
        wanted = self._outputs - len(self._states)
        if wanted > 0:
            raise ModelError(
                f"how often {self._what} runs is not known before the model runs, nor how long "
                f"the last {wanted} of its outputs are; give it a constant number of rounds, or "
                "use its states alone"
            )

    def _check_states(self, states: Sequence[Expr]) -> None:
        for name, before, after in zip(self._names, self._states, states, strict=True):
            if not tvm_ffi.structural_equal(before.ty, after.ty):
                raise ModelError(
                    f"state {name!r} of {self._what} is {describe_type(before.ty)} and comes out "
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
                    f"{self._what} stacks {count} rows of {size} bytes, more than "
                    f"{BOUNDS.alive >> 20} MiB"
                )
