"""Analyses hand-written loops in an opaque block, which declares no axes, reads or writes.

TVM has such blocks for prefix sums, scatters and searches: their accesses depend on data, or on
earlier stores. The analysis decides whether the steps of an outermost loop are independent. They
are where the author made the loop parallel, and where each step has its own slice of every tensor
that is written:

    for j in range(300):
        for k in range(511):
            out[k + 1, j] = out[k, j] + x[k + 1, j]         # step j owns column j
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm.ir import Call, TensorLoad
from tvm.s_tir import SBlock
from tvm.sym import Analyzer
from tvm.tirx import AttrStmt, BufferStore, For, ForKind, IntImm, SeqStmt, Stmt, While

from autopipe.compiler.find_nodes import find_nodes, list_loads
from autopipe.schedules.analysis.blocks import element_bits
from autopipe.schedules.analysis.boundaries import find_stride
from autopipe.schedules.analysis.expressions import flat_index
from autopipe.schedules.parallel_work import UNKNOWN_STEPS

_EXTERN: Final = ("call_packed", "call_cpacked", "call_extern", "make_array")


@dataclass(frozen=True, slots=True)
class HandNest:
    """An outermost loop."""

    loop: For
    extent: int
    work: int
    """Loads and stores of all steps, roughly."""
    independent: bool
    """Whether its steps may run in any order and in parallel."""
    carried: bool
    """Whether an inner loop reads a tensor that it writes; the body is only loops and stores."""
    beside: bool
    """Whether all accesses have stride 0 or 1 along the loop."""
    bits: int
    """Size of the largest element that is written."""


def is_hand_written(block: SBlock) -> bool:
    """Tell whether a block is opaque, has no inner block, and calls no external function."""
    if block.iter_vars or block.reads or block.writes or block.alloc_buffers:
        return False
    blocks = find_nodes(block.body, SBlock)
    calls = find_nodes(block.body, Call)
    if blocks:
        return False
    names = [str(getattr(call.op, "name", "")) for call in calls]
    return not any(part in name for name in names for part in _EXTERN)


def flatten_statements(body: Stmt) -> Iterator[Stmt]:
    """Yield the statements of a body, without sequences and attributes around them."""
    if isinstance(body, AttrStmt):
        yield from flatten_statements(body.body)
    elif isinstance(body, SeqStmt):
        for part in body.seq:
            yield from flatten_statements(part)
    else:
        yield body


def describe_nest(loop: For) -> HandNest | None:
    """Describe an outermost loop, or return None if its extent is not constant."""
    if not isinstance(loop.extent, IntImm) or not isinstance(loop.min, IntImm) or int(loop.min):
        return None
    analyzer = Analyzer()
    loops = find_nodes(loop, For)
    for inner in loops:
        analyzer.bind(inner.loop_var, tvm.ir.Range.from_min_extent(inner.min, inner.extent))
    stores = find_nodes(loop, BufferStore)
    is_plain = _is_plain(loop.body)
    is_parallel = loop.kind == ForKind.PARALLEL
    return HandNest(
        loop=loop, extent=int(loop.extent), work=_estimate_work(loop),
        independent=is_parallel or (is_plain and _is_partitioned(loop, stores, analyzer)),
        carried=is_plain and any(_is_loop_carried(one) for one in loops if not one.same_as(loop)),
        beside=is_plain
        and all(
            find_stride(analyzer.simplify(flat_index(*one)), loop.loop_var) in {0, 1}
            for one in _list_accesses(stores)
        ),
        bits=max((element_bits(store.buffer.dtype) for store in stores), default=8),
    )  # fmt: skip


def _is_plain(body: Stmt) -> bool:
    """Tell whether a body consists of loops of constant extent and stores."""
    if isinstance(body, SeqStmt):
        return all(map(_is_plain, body.seq))
    if isinstance(body, For):
        is_constant = isinstance(body.extent, IntImm) and isinstance(body.min, IntImm)
        return is_constant and int(body.min) == 0 and _is_plain(body.body)
    return isinstance(body, BufferStore)


def _estimate_work(statement: tvm.tirx.Stmt) -> int:
    if isinstance(statement, SeqStmt):
        return sum(map(_estimate_work, statement.seq))
    if isinstance(statement, For):
        is_constant = isinstance(statement.extent, IntImm)
        return (int(statement.extent) if is_constant else UNKNOWN_STEPS) * _estimate_work(
            statement.body
        )
    if isinstance(statement, While):
        return UNKNOWN_STEPS * _estimate_work(statement.body)
    if isinstance(statement, BufferStore):
        return 1 + len(list_loads(statement.value))
    parts = (getattr(statement, name, None) for name in ("body", "then_case", "else_case"))
    return sum(_estimate_work(part) for part in parts if part is not None)


Access = tuple[Any, Sequence[Any]]
"""A tensor and the indices of an access."""


def _list_accesses(stores: Sequence[BufferStore]) -> list[Access]:
    accesses: list[Access] = []
    for store in stores:
        accesses.append((store.buffer, store.indices))
        for part in (store.value, *store.indices):
            accesses += [(load.source, load.indices) for load in list_loads(part)]
    return accesses


def _is_partitioned(loop: For, stores: Sequence[BufferStore], analyzer: Analyzer) -> bool:
    """Tell whether each step has its own slice of every tensor that is written."""
    accesses = _list_accesses(stores)
    return all(
        _has_its_own(
            [at for buffer, at in accesses if buffer.same_as(store.buffer)], store, loop, analyzer
        )
        for store in stores
    )


def _has_its_own(
    places: Sequence[Sequence[Any]], store: BufferStore, loop: For, analyzer: Analyzer
) -> bool:
    """Tell whether some index, or the offset, is the loop variable plus one constant everywhere."""
    choices = [[at[axis] for at in places] for axis in range(len(store.indices))]
    choices.append([flat_index(store.buffer, at) for at in places])
    for indices in choices:
        offsets = [analyzer.simplify(index - loop.loop_var) for index in indices]
        if all(isinstance(o, IntImm) and int(o) == int(offsets[0]) for o in offsets):
            return True
    return False


def _is_loop_carried(loop: For) -> bool:
    """Tell whether a loop reads a tensor that it writes."""
    stores = find_nodes(loop, BufferStore)
    loads = find_nodes(loop, TensorLoad)
    return any(load.source.same_as(store.buffer) for load in loads for store in stores)
