"""Packs recurrent weights in the order in which the tiles read them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it

from autopipe.compiler.graph.weights import MARK
from autopipe.compiler.recurrence.cells import Phase, list_phases
from autopipe.compiler.recurrence.plain import BLOCK, Tensors, make_index
from autopipe.schedules.analysis.expressions import find_block_start
from autopipe.schedules.recurrence.blocking import JOINED, UnitBlocking


@dataclass(frozen=True, slots=True)
class PackedGates:
    """The recurrent weights of a phase in the order in which the tiles read them.

    All phases share a buffer of [directions, tiles, weights of a tile], since TVM extracts one
    block for each weight of a function. The weights of a tile are those of the phases in order,
    each as [groups of gates, terms, gates of a group, units of a tile], or, where an instruction
    takes four terms, as [groups of gates, terms / 4, gates of a group, units of a tile, 4].
    """

    phase: Phase
    gates: int
    """Gates with sums in registers at once."""
    buffer: Any
    terms: int
    """Terms of a sum."""
    width: int
    """Hidden units of a tile."""
    joined: int
    """Terms that an instruction adds at once; their weights are neighbours."""

    @classmethod
    def of(cls, tensors: Tensors, knobs: UnitBlocking) -> list["PackedGates"]:
        """Return the packed weights of each phase."""
        form = tensors.form
        tiles = ceil(form.hidden / knobs.width)
        shape = (len(form.directions), tiles, form.gates * form.hidden * knobs.width)
        buffer = tirx.decl_buffer(
            [make_index(extent) for extent in shape], tensors["r"].ty.dtype, f"{BLOCK}_packed"
        )
        return [
            cls(
                phase,
                min(knobs.gates, len(phase.gates)),
                buffer,
                form.hidden,
                knobs.width,
                JOINED if knobs.instruction else 1,
            )
            for phase in list_phases(form, 0)
        ]

    def place(self, group: Expr, term: Expr, gate: Expr, lane: Expr) -> Expr:
        """Return the offset of a weight among those of a tile."""
        start, group_size = make_index(self.phase.gates[0] * self.terms * self.width), self.joined
        row = (group * (self.terms // group_size) + term // group_size) * self.gates + gate
        return start + (row * self.width + lane) * group_size + term % group_size

    def placed(self, gate: Expr, term: Expr, lane: Expr) -> Expr:
        """Return the offset of a weight by the position of its gate among those of all phases."""
        phase_gate = gate - self.phase.gates[0]
        return self.place(phase_gate // self.gates, term, phase_gate % self.gates, lane)


def pack_gates(tensors: Tensors, copies: Sequence[PackedGates], *, free: bool) -> tirx.Stmt:
    """Write the packing loops, which the build executes if the weights are constant."""
    buffer, form = copies[0].buffer, tensors.form
    ways, tiles = buffer.ty.shape[:2]
    extents = [ways, tiles, *map(make_index, (form.gates, form.hidden, copies[0].width))]
    with IRBuilder() as builder, T.grid(*extents) as loops, T.sblock(str(buffer.name)):
        way, tile, gate, term, lane = T.axis.remap("SSSSS", list(loops), dtype="int64")
        unit = find_block_start(tile, copies[0].width, form.hidden) + lane
        value = tensors["r"][way, term, gate * form.hidden + unit]
        place, *later_places = [copy.placed(gate, term, lane) for copy in copies]
        for copy, later_place in zip(copies[1:], later_places, strict=True):
            place = tirx.Select(gate < copy.phase.gates[0], place, later_place)
        T.reads(value)
        T.writes(buffer[way, tile, 0 : buffer.ty.shape[2]])
        if free:
            T.sblock_attr({MARK: True})
        T.buffer_store(buffer, value, [way, tile, place])
    return builder.get()
