"""Splits a function of several blocks into functions of some blocks each, and joins them again.

Example: the blocks [pad, conv, relu, pool] are split into `part(0, 3)` and `part(3, 4)`. The first
part takes the image and the weights and writes the result of relu; the second part takes that
result. `join` puts the scheduled parts one after the other, the result of relu in a buffer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm import tirx
from tvm.ir import Call
from tvm.s_tir import SBlock, SBlockRealize

from autopipe.compiler.find_nodes import find_nodes, is_among, list_loads
from autopipe.compiler.graph import weights
from autopipe.compiler.loops.copy_loops import list_blocks
from autopipe.schedules.analysis.expressions import remove_duplicates, to_full_region

_ROOT: Final = "root"
_DATA: Final = "tirx.buffer_data"
"""The operator for the address of a buffer, an argument of external functions."""


@dataclass(frozen=True, slots=True)
class Steps:
    """A function as the loops around its blocks, in order."""

    function: tirx.PrimFunc
    statements: tuple[Any, ...]
    """The loops around one block each."""
    blocks: tuple[SBlock, ...]
    """The block of each statement."""

    @classmethod
    def of(cls, function: tirx.PrimFunc) -> "Steps | None":
        """Return the steps of a function, or None if it is no sequence of loops around a block."""
        root = getattr(function.body, "block", None)
        if not isinstance(root, SBlock) or not isinstance(root.body, tirx.SeqStmt):
            return None
        blocks = [_find_outermost_block(statement) for statement in root.body.seq]
        buffers = [*function.params, *root.alloc_buffers]
        declared_blocks = [
            _declare_accesses(block, buffers) for block in blocks if block is not None
        ]
        if len(declared_blocks) != len(blocks) or not all(
            block.writes for block in declared_blocks
        ):
            return None
        return cls(function, tuple(root.body.seq), tuple(declared_blocks))

    def closed(self, start: int, end: int) -> bool:
        """Tell whether other blocks read only the result of the last of these blocks.

        Templates do not serve parts with several outputs. An opaque block without axes, such as a
        sort, is a part of its own. One that reads its own output, as a scan does, is in no part.
        """
        inside = self.blocks[start:end]
        if not all(block.iter_vars for block in inside):
            return len(inside) == 1
        if any(
            is_among(r.source, _list_buffers([one], "writes")) for one in inside for r in one.reads
        ):
            return False
        visible_buffers = self._list_visible_buffers(start, end)
        return not any(
            is_among(buffer, visible_buffers) for buffer in _list_buffers(inside[:-1], "writes")
        )

    def part(self, start: int, end: int) -> tvm.IRModule:
        """Return a module with these blocks as `main`: its parameters are its inputs, then outputs.

        The outputs are the buffers that other blocks, or the caller, read. Weights keep their free
        layout.
        """
        inside = self.blocks[start:end]
        reads, writes = _list_buffers(inside, "reads"), _list_buffers(inside, "writes")
        visible_buffers = self._list_visible_buffers(start, end)
        inputs = [buffer for buffer in reads if not is_among(buffer, writes)]
        outputs = [buffer for buffer in writes if is_among(buffer, visible_buffers)]
        inner = [buffer for buffer in writes if not is_among(buffer, visible_buffers)]
        free = weights.list_weights(self.function)
        attributes = {
            "tirx.noalias": True,
            "s_tir": True,
            "layout_free_buffers": [i for i, buffer in enumerate(inputs) if is_among(buffer, free)],
        }
        body = _make_root_block(self.statements[start:end], inner)
        function = tirx.PrimFunc([*inputs, *outputs], body).with_attr(attributes)
        return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})

    def _list_visible_buffers(self, start: int, end: int) -> list[Any]:
        """Return the buffers that the caller or the other blocks read, or may write as well."""
        other_blocks = [*self.blocks[:start], *self.blocks[end:]]
        return [
            *self.function.params,
            *_list_buffers(other_blocks, "reads"),
            *_list_buffers(other_blocks, "writes"),
        ]

    def join(self, parts: Sequence[tvm.IRModule]) -> SBlock:
        """Return the root block of the function with all its parts, scheduled, in order."""
        roots = [part["main"].body.block for part in parts]
        params = [param for part in parts for param in part["main"].params]
        intermediates: list[Any] = []
        for buffer in params:
            if not is_among(buffer, [*self.function.params, *intermediates]):
                intermediates.append(buffer)
        buffers = [*intermediates, *(buffer for root in roots for buffer in root.alloc_buffers)]
        nests = [nest for root in roots for nest in _list_nests(root.body)]
        return _make_root_block([_forbid_in_place(nest) for nest in nests], buffers).block


def _make_root_block(statements: Sequence[Any], buffers: Sequence[Any]) -> SBlockRealize:
    body = statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))
    block = SBlock([], [], [], _ROOT, body, alloc_buffers=list(buffers))
    return SBlockRealize([], True, block)  # noqa: FBT003 - TVM's signature


def _list_nests(body: tirx.Stmt) -> list[tirx.Stmt]:
    """Return the loop nests of a root block; the whole body, if it declares aliases of buffers.

    An alias is in scope of the statements after it, and TVM requires a block in each statement.
    """
    nests = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    return nests if all(map(list_blocks, nests)) else [body]


def _forbid_in_place(nest: tirx.Stmt) -> tirx.Stmt:
    """Mark loops so that TVM does not reuse the buffer of an operand for the result.

    TVM reuses it after the last read, which is wrong where tiles overlap and compute some elements
    twice: `gp = select(p > 0, g, 0)` in the buffer of p would read its own result the second time.
    """
    if any(weights.MARK in block.annotations for block in list_blocks(nest)):
        return nest  # weights are packed when a model is compiled
    zero = tirx.const(0, "int32")
    return tirx.AttrStmt(zero, "extern_scope", zero, nest)


def _list_buffers(blocks: Sequence[SBlock], side: str) -> list[Any]:
    """Return the buffers that blocks read or write, without repetitions."""
    return remove_duplicates([region.source for block in blocks for region in getattr(block, side)])


def _find_outermost_block(statement: tvm.tirx.Stmt) -> SBlock | None:
    """Return the outermost block in loops; None if there is none, or several."""
    while isinstance(statement, tirx.For):
        statement = statement.body
    return statement.block if isinstance(statement, SBlockRealize) else None


def _declare_accesses(block: SBlock, buffers: Sequence[Any]) -> SBlock:
    """Declare the reads and writes of an opaque block, such as a sort, among some buffers.

    Arguments of external functions count as both.
    """
    if block.reads or block.writes or block.iter_vars:
        return block
    loaded_buffers = [load.source for load in list_loads(block.body)]
    stored_buffers = [store.buffer for store in find_nodes(block.body, tirx.BufferStore)]
    calls = find_nodes(block.body, Call)
    call_buffers = [call.args[0] for call in calls if getattr(call.op, "name", "") == _DATA]
    reads, writes = (
        [to_full_region(one) for one in buffers if is_among(one, [*some, *call_buffers])]
        for some in (loaded_buffers, stored_buffers)
    )
    return SBlock([], reads, writes, block.name_hint, block.body)
