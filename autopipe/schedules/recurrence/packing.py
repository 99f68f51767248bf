"""Packs recurrent weights: copies them into the order in which the tiles read them."""

from dataclasses import dataclass
from math import ceil
from typing import Any

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.graph.weights import MARK
from autopipe.compiler.recurrence.cells import Phase
from autopipe.compiler.recurrence.plain import BLOCK, Tensors, number
from autopipe.schedules.recurrence.blocking import UnitBlocking


@dataclass(frozen=True, slots=True)
class PackedGates:
    """The recurrent weights of a phase in the order in which the tiles read them."""

    phase: Phase
    gates: int
    """Gates that are summed at once."""
    buffer: Any
    """[directions, tiles, groups of gates, terms, gates of a group, units of a tile]."""

    @classmethod
    def of(cls, tensors: Tensors, phase: Phase, knobs: UnitBlocking) -> "PackedGates":
        """Return the copy that the tiles of a phase read from."""
        form = tensors.form
        gates = min(knobs.gates, len(phase.gates))
        tiles, groups = ceil(form.hidden / knobs.width), len(phase.gates) // gates
        shape = (len(form.directions), tiles, groups, form.hidden, gates, knobs.width)
        sizes = [number(extent) for extent in shape]
        name = f"{BLOCK}_packed_{phase.gates[0]}"
        return cls(phase, gates, tirx.decl_buffer(sizes, form.dtype, name))

    @property
    def name(self) -> str:
        """Name of the block that writes it."""
        return str(self.buffer.name)

    def write(self, tensors: Tensors, knobs: UnitBlocking, *, free: bool) -> tirx.Stmt:
        """Return the loops that write it, which the build runs if these are weights."""
        shape = list(self.buffer.ty.shape)
        with IRBuilder() as builder, T.grid(*shape) as loops, T.sblock(self.name):
            index = list(T.axis.remap("S" * len(shape), list(loops), dtype="int64"))
            way, tile, group, term, gate, lane = index
            hidden = tensors.form.hidden
            which = group * self.gates + gate + self.phase.gates[0]
            unit = first(tile, knobs.width, hidden) + lane
            value = tensors["r"][way, term, which * hidden + unit]
            T.reads(value)
            T.writes(self.buffer[tuple(index)])
            if free:
                T.sblock_attr({MARK: True})
            T.buffer_store(self.buffer, value, index)
        return builder.get()


def first(block: Expr, size: int, extent: int) -> Expr:
    """Return where a block begins; the last one overlaps the one before rather than end outside."""
    start = block * size
    return start if extent % size == 0 else tirx.min(start, number(extent - size))
