"""Describes the reducer of a block: any operator, on any value, with one or several results.

Example: the maximum of each row, and its position.

    at[i]   = select(most[i] >= x[i, k], at[i], k)        # results at and most, started at -1
    most[i] = max(most[i], x[i, k])                       # and the lowest number

has two `stores`, at[i] and most[i]; two `starts`; and two `values`, that read both results.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad
from tvm.s_tir import SBlock
from tvm.sym import Analyzer
from tvm.tirx import Bind, BufferStore, SeqStmt

from autopipe.compiler.find_nodes import find_nodes, list_loads
from autopipe.schedules.analysis.expressions import (
    Values,
    branches_of,
    remove_repeated_loads,
    replace_variables,
    to_selects,
)
from autopipe.schedules.analysis.narrow import narrow_to_int32


@dataclass(frozen=True, slots=True)
class Reducer:
    """The stores, initial values and steps of a reduction."""

    stores: tuple[BufferStore, ...]
    """The store of each result; all at the same indices."""
    starts: tuple[Expr, ...]
    """Initial value of each result."""
    values: tuple[Expr, ...]
    """Value of each result after a step; it reads the results before the step."""
    originals: tuple[BufferStore, ...] = ()
    """The stores to the outputs of the function, where `stores` are of narrower dtypes."""

    @property
    def finals(self) -> tuple[BufferStore, ...]:
        """The stores to the outputs of the function."""
        return self.originals or self.stores

    @classmethod
    def of(cls, block: SBlock) -> "Reducer | None":
        """Describe the reducer of a block, or return None if it has none."""
        stores, starts = _list_stores(block.body), _list_stores(block.init)
        if not stores or len(stores) != len(starts) or not _has_matching_starts(stores, starts):
            return None
        bound_values: list[tuple[Any, Expr]] = []
        for bind in getattr(block.body, "seq", ()):
            if isinstance(bind, Bind):
                bound_values.append((bind.var, replace_variables(bind.value, bound_values)))
        values = tuple(replace_variables(store.value, bound_values) for store in stores)
        reducer = cls(stores, tuple(start.value for start in starts), values)
        if block.alloc_buffers or block.match_buffers or any(map(_is_varying, reducer.starts)):
            return None
        result_loads = [
            load
            for value in values
            for load in list_loads(value)
            if reducer.place(load) is not None
        ]
        is_aligned = all(
            tvm_ffi.structural_equal(load.indices, stores[0].indices) for load in result_loads
        )
        return reducer if is_aligned and result_loads else None

    def at(self, values: Values) -> "Reducer":
        """Substitute the values of variables."""
        stores = [
            BufferStore(
                store.buffer, store.value, [replace_variables(i, values) for i in store.indices]
            )
            for store in self.stores
        ]
        step_values = tuple(replace_variables(value, values) for value in self.values)
        return Reducer(tuple(stores), self.starts, step_values)

    def evened(self, analyzer: Analyzer) -> "Reducer":
        """Replace branches by selects where both sides may be evaluated.

        Vectors can select, but not branch. A branch stays where it keeps a load in bounds, or
        guards a division by zero. `analyzer` has the ranges of variables.

        Example: the sum of x[k] over k where k <= i; all loads are in bounds of x.
        """
        values = tuple(
            to_selects(value, lambda call: _can_speculate(call, analyzer)) for value in self.values
        )
        return Reducer(self.stores, self.starts, values)

    def narrowed(self, analyzer: Analyzer) -> "Reducer":
        """Narrow int64 positions to int32, where their values fit.

        Vectors hold twice as many of these. `analyzer` has the ranges of variables.
        """
        narrow_parts = narrow_to_int32(
            [store.buffer for store in self.stores], self.starts, self.values, analyzer
        )
        if narrow_parts is None:
            return self
        buffers, starts, values = narrow_parts
        stores = [
            BufferStore(buffer, value, store.indices)
            for buffer, value, store in zip(buffers, values, self.stores, strict=True)
        ]
        return Reducer(tuple(stores), tuple(starts), tuple(values), self.stores)

    def place(self, load: TensorLoad) -> int | None:
        """Return the position of the result that a load reads; None for an operand."""
        buffers = [store.buffer for store in self.stores]
        return next((i for i, one in enumerate(buffers) if load.source.same_as(one)), None)

    def operands(self) -> list[TensorLoad]:
        """Return the loads of operands, without repetitions."""
        loads = [load for value in self.values for load in list_loads(value)]
        return remove_repeated_loads([load for load in loads if self.place(load) is None])

    def branches(self) -> list[Expr]:
        """Return the conditions of branches around operands."""
        return [branch.args[0] for value in self.values for branch in branches_of(value)]

    def step(
        self, results: Sequence[Expr], values: Values, read: Callable[[TensorLoad], Expr]
    ) -> list[Expr]:
        """Return the results after a step, from the `results` before it; `read` loads operands."""

        def load(operand: TensorLoad) -> Expr:
            place = self.place(operand)
            return read(operand) if place is None else results[place]

        return [replace_variables(value, values, load) for value in self.values]


def _list_stores(body: tvm.tirx.Stmt) -> tuple[BufferStore, ...]:
    """Return the stores of a body of bindings and stores; () for another body."""
    if isinstance(body, BufferStore):
        return (body,)
    if not isinstance(body, SeqStmt):
        return ()
    parts = list(body.seq)
    stores = tuple(part for part in parts if isinstance(part, BufferStore))
    names = all(isinstance(part, Bind) for part in parts[: len(parts) - len(stores)])
    last = all(isinstance(part, BufferStore) for part in parts[len(parts) - len(stores) :])
    # With its value inlined, a store would read the result of an earlier store.
    plain = len(stores) == 1 or not any(list_loads(store.value) for store in stores)
    return stores if names and last and plain else ()


def _has_matching_starts(stores: Sequence[BufferStore], starts: Sequence[BufferStore]) -> bool:
    """Tell whether results are initialized where they are stored, all at the same indices."""
    return all(
        store.buffer.same_as(start.buffer)
        and tvm_ffi.structural_equal(store.indices, start.indices)
        and tvm_ffi.structural_equal(store.indices, stores[0].indices)
        and sum(store.buffer.same_as(other.buffer) for other in stores) == 1
        for store, start in zip(stores, starts, strict=True)
    )


def _is_varying(start: Expr) -> bool:
    """Tell whether an initial value depends on the output."""
    variables = find_nodes(start, tirx.Var)
    return bool(variables or list_loads(start))


def _can_speculate(call: Call, analyzer: Analyzer) -> bool:
    """Tell whether both sides of a branch may be evaluated unconditionally."""
    if has_variable_divisor(call):
        return False
    return all(is_inside(load, analyzer) for load in list_loads(call))


def is_inside(load: TensorLoad, analyzer: Analyzer) -> bool:
    """Tell whether a load is proved in bounds."""
    return all(
        analyzer.can_prove(index >= 0) and analyzer.can_prove(index < extent)
        for index, extent in zip(load.indices, load.source.ty.shape, strict=True)
    )


def has_variable_divisor(value: Expr) -> bool:
    """Tell whether an integer division has a divisor that is not constant."""
    divisions = find_nodes(value, tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
    return any(
        "int" in str(one.ty.dtype) and not isinstance(one.b, tirx.IntImm) for one in divisions
    )
