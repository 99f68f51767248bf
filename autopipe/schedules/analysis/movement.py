"""Describes how a function without reductions reads memory, from its TIR alone.

Each read is described as `AxisPiece`s of the output's axes, by TVM's `normalize_to_iter_sum`.

Example: the transpose y[b, i, j] = x[b, j, i] of [2, 8, 12] has the output extents (2, 12, 8) and
one read of three pieces: axis 0 with stride 96, axis 1 with stride 1, axis 2 with stride 12. Its
`tail` is 1. An elementwise function of [2, 8, 12] has `tail` 3: its axes are as good as one axis
of 192 elements.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import tvm
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, Schedule, ScheduleError
from tvm.s_tir.schedule import SBlockRV

from autopipe.compiler.loops.exact_divisions import to_iteration_sum
from autopipe.schedules.analysis.blocks import bind_axes, element_bits, is_spatial, is_static
from autopipe.schedules.analysis.boundaries import divide_axis, find_boundaries, nodes_of
from autopipe.schedules.analysis.expressions import is_branch
from autopipe.schedules.analysis.periods import DIVISIONS
from autopipe.schedules.analysis.simple_indices import simplify_block
from autopipe.schedules.analysis.usual_stride import find_axis_stride
from autopipe.schedules.analysis.written_axes import use_written_axes
from autopipe.schedules.choices import can_read_both, has_indirect_choice
from autopipe.schedules.effort import Effort, estimate_element_effort
from autopipe.schedules.primitives import replace_block

_WIDE: Final = 64


@dataclass(frozen=True, slots=True)
class AxisPiece:
    """A part of an axis of the output along which a read moves by a constant stride."""

    axis: int
    """Position of the axis."""
    lower: int
    """Steps along the axis for one step of the piece."""
    extent: int
    """Number of steps of the piece."""
    stride: int
    """Elements of the tensor that is read for one step of the piece."""


@dataclass(frozen=True, slots=True)
class Movement:
    """What a function without reductions reads, as seen from the output that it writes."""

    extents: tuple[int, ...]
    """Extents of the output's axes."""
    bits: int
    """Size of the largest element that is read or written, in bits."""
    reads: tuple[tuple[AxisPiece, ...] | None, ...]
    """How each read moves; None where that depends on data, as in a gather."""
    parts: tuple[int, ...]
    """Extents into which conditions divide the last axis, as in a concatenation; () without."""
    above: tuple[int, ...]
    """The same of the axis before it."""
    tail: int
    """Number of last axes that are as good as one: every read moves through them evenly."""
    effort: Effort = field(default_factory=Effort)
    """What one thread takes for an element, estimated."""
    folded: bool = False
    """Whether a read divides an index, as the copy of an image to a row does."""
    mixed: bool = False
    """Whether truths are written, or 64 bits are read, as an index has, where less is written, or
    the value is made of the index itself, as that of a range is. TVM's vectors of these are slow;
    LLVM finds its own."""
    indexed: bool = False
    """Whether the value hangs on the last index itself, as that of a unit matrix does, and no
    condition divides that axis."""
    copies: bool = False
    """Whether elements are only moved."""
    elsewhere: bool = False
    """Whether the value hangs on the index of another axis than the last one."""
    chooses: bool = False
    """Whether neighbours along the last axis may choose another one of two values. TVM's vectors
    hold both; LLVM may make branches."""
    looks_up: bool = False
    """Whether neighbours along the last axis look up what they choose from."""
    both: bool = False
    """Whether both may always be read, and no condition divides the last axis."""
    in_steps: bool = False
    """Whether rows are read in steps or divided, as template `elementwise` finds."""
    is_dynamic: bool = False
    """Whether sizes are dynamic; extents are those at specialized sizes then."""

    @property
    def backwards(self) -> bool:
        """Tell whether a read goes back in memory, which TVM loads one by one in its vectors."""
        return any(read and find_innermost(read, self.extents).stride < 0 for read in self.reads)

    @property
    def scattered(self) -> bool:
        """Tell whether neighbours along the last axis are read at no constant stride.

        So in a gather, at a clamped index, or past the end of a circle. TVM loads these one by one
        in its vectors, and LLVM does better.
        """
        return None in self.reads

    @property
    def run(self) -> int:
        """Return how many neighbours of the output are read alike: one source, one stride."""
        return math.gcd(
            self.extents[-1], *self.parts, *(self._find_run_length(read) for read in self.reads)
        )

    def _find_run_length(self, read: tuple[AxisPiece, ...] | None) -> int:
        return find_innermost(read, self.extents).extent if read else self.extents[-1]


def find_innermost(read: tuple[AxisPiece, ...], extents: tuple[int, ...]) -> AxisPiece:
    """Return how a read moves from an output to its neighbours; the stride may be 0."""
    last = len(extents) - 1
    pieces = sorted((piece for piece in read if piece.axis == last), key=lambda piece: piece.lower)
    if pieces and pieces[0].lower == 1:
        return pieces[0]
    return AxisPiece(last, 1, pieces[0].lower if pieces else extents[-1], 0)


def inline_into_last(sch: Schedule) -> SBlockRV:
    """Inline all blocks into the last one and return it. Raises ScheduleError where TVM refuses.

    A block that writes elsewhere than its axes say gets the axes of what it writes. Example:
    y[c // 16, h, c % 16] = x[c, h] becomes y[a, h, b] = x[16 * a + b, h].
    """
    *before, last = sch.get_child_blocks(sch.get_sblock("root"))
    for producer in before:
        sch.compute_inline(producer)
    simplify_block(sch, last)
    last_block = sch.get(last)
    indices = list(getattr(last_block.body, "indices", ()))
    axes = [axis.var for axis in last_block.iter_vars]
    if is_static(last_block) and axes and indices and not _is_identity(indices, axes):
        last = use_written_axes(sch, last)
        simplify_block(sch, last)
        if any(int(axis.dom.extent) == 1 for axis in sch.get(last).iter_vars):
            _name_single(sch, last)
    return last


def _name_single(sch: Schedule, rv: SBlockRV) -> None:
    """Write at the axis, which is 0, and not at 0 where an axis has one element."""
    block, store = sch.get(rv), sch.get(rv).body
    indices = [
        index if int(axis.dom.extent) > 1 else axis.var
        for axis, index in zip(block.iter_vars, store.indices, strict=True)
    ]
    region = store.buffer[tuple(slice(index, index + 1) for index in indices)]
    body = tvm.tirx.BufferStore(store.buffer, store.value, indices)
    replace_block(sch, rv, body, [region])


def match_movement(sch: Schedule) -> Movement | None:
    """Return how a function reads memory, or None if it reduces or has several outputs."""
    sch = sch.copy()
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    if not all(is_spatial(sch.get(block)) and is_static(sch.get(block)) for block in blocks):
        return None
    try:
        return match_block_movement(sch.get(inline_into_last(sch)))
    except ScheduleError:  # more than one output
        return None


def match_block_movement(block: SBlock) -> Movement | None:
    """Return how a block without reductions reads memory, or None if it is no plain assignment."""
    value = getattr(block.body, "value", None)
    if value is None or len(block.writes) != 1 or not block.iter_vars:
        return None
    axes = [axis.var for axis in block.iter_vars]
    extents = tuple(int(axis.dom.extent) for axis in block.iter_vars)
    target = [part.min for part in block.writes[0].region]
    if not _is_identity(target, axes):
        return None
    loads = [node for node in nodes_of(value) if isinstance(node, TensorLoad)]
    totals = [_find_read_offset(load, block) for load in loads]
    reads = [_to_axis_pieces(total, axes) for total in totals]
    pairs = zip(loads, reads, strict=True)
    shares = [(load, _estimate_new_elements(load, read, block)) for load, read in pairs]
    used_axes = _find_used_axes(nodes_of(value, within_loads=False), axes)
    boundaries = find_boundaries(value, block)
    parts = divide_axis(boundaries[len(axes) - 1], extents[-1])
    indexed = len(axes) - 1 in used_axes and not parts
    chooses = any(_is_choice(node, axes[-1]) for node in nodes_of(value))
    dtypes = [block.writes[0].source.dtype, *(load.source.dtype for load in loads)]
    return Movement(
        extents=extents,
        bits=max(map(element_bits, dtypes)),
        reads=tuple(reads),
        parts=parts,
        above=divide_axis(boundaries[len(axes) - 2], extents[-2]) if extents[1:] else (),
        tail=_count_fused_axes(
            extents,
            reads,
            used_axes.union(*(_find_used_axes(nodes_of(total.base), axes) for total in totals)),
        ),
        mixed=dtypes[0] == "bool"
        or element_bits(dtypes[0]) < _WIDE == max(map(element_bits, dtypes))
        or (indexed and not chooses),
        indexed=indexed,
        copies=isinstance(value, TensorLoad),
        elsewhere=bool(used_axes - {len(axes) - 1}),
        chooses=chooses,
        looks_up=has_indirect_choice(block),
        both=chooses and not parts and can_read_both(block),
        effort=estimate_element_effort(value, element_bits(dtypes[0]), shares),
        folded=any(isinstance(node, DIVISIONS) for node in nodes_of(value)),
    )


def find_load_offset(load: TensorLoad, block: SBlock) -> tuple[int, tuple[AxisPiece, ...]] | None:
    """Return where in memory a load begins, and how it moves; None if that depends on data."""
    total = _find_read_offset(load, block)
    pieces = _to_axis_pieces(total, [axis.var for axis in block.iter_vars])
    if pieces is None or not isinstance(total.base, tvm.tirx.IntImm):
        return None
    return int(total.base), pieces


def _estimate_new_elements(
    load: TensorLoad, read: tuple[AxisPiece, ...] | None, block: SBlock
) -> float:
    """Return how many new elements a load takes from memory for an output; 0 if they are apart."""
    if read is None:
        return float(find_axis_stride(load, block.iter_vars[-1].var) in {0, 1})
    piece = find_innermost(read, tuple(int(axis.dom.extent) for axis in block.iter_vars))
    if piece.stride:
        return float(abs(piece.stride) == 1)
    is_split = piece.extent < int(block.iter_vars[-1].dom.extent)
    is_shift = piece.extent & (piece.extent - 1) == 0  # else LLVM makes no vectors
    return 1 / piece.extent if is_shift or not is_split else 0.0


def _is_choice(node: tvm.ir.Node, last: tvm.ir.Var) -> bool:
    if isinstance(node, tvm.tirx.Select):
        return True
    return is_branch(node) and any(
        isinstance(one, TensorLoad) or _is_same(one, last) for one in nodes_of(node.args[0])
    )


def _is_identity(indices: Sequence[Any], axes: Sequence[Any]) -> bool:
    return len(indices) == len(axes) and all(map(_is_same, indices, axes))


def _find_read_offset(load: TensorLoad, block: SBlock) -> Any:  # noqa: ANN401 - tvm is not typed
    """Return the offset in memory that is read, as TVM's sum of parts of axes."""
    analyzer = bind_axes(block)
    flat = block.iter_vars[0].dom.min  # 0, of the type that indices have
    for index, extent in zip(load.indices, load.source.shape, strict=True):
        flat = flat * int(extent) + analyzer.simplify(index)
    return to_iteration_sum(analyzer.simplify(flat), block, analyzer)


def _to_axis_pieces(total: Any, axes: list[tvm.ir.Var]) -> tuple[AxisPiece, ...] | None:  # noqa: ANN401 - a sum of axes
    if _find_used_axes(nodes_of(total.base), axes[-1:]):
        return None
    pieces = []
    for split in total.args:
        at = [i for i, axis in enumerate(axes) if _is_same(axis, split.source.source)]
        if not at:
            return None
        numbers = (int(split.lower_factor), int(split.extent), int(split.scale))
        pieces.append(AxisPiece(at[0], *numbers))
    return tuple(sorted(pieces, key=lambda piece: (piece.axis, -piece.lower)))


def _find_used_axes(nodes: Iterator[Any], axes: list[Any]) -> set[int]:
    """Return which axes are among the parts of an expression."""
    return {at for node in nodes for at, axis in enumerate(axes) if _is_same(node, axis)}


def _count_fused_axes(
    extents: tuple[int, ...], reads: list[tuple[AxisPiece, ...] | None], used_axes: set[int]
) -> int:
    """Return how many of the last axes every read moves through as if they were one axis."""
    wide = [axis for axis, extent in enumerate(extents) if extent > 1]
    first = wide.pop() if wide else 0
    while wide and not used_axes & {first, wide[-1]}:
        if not all(
            read is not None and _can_fuse_axes(read, wide[-1], first, extents) for read in reads
        ):
            break
        first = wide.pop()
    return len(extents) - first


def _can_fuse_axes(
    read: tuple[AxisPiece, ...], outer: int, inner: int, extents: tuple[int, ...]
) -> bool:
    """Tell whether a step along `outer` continues a read where `inner` ends."""
    steps = [[piece for piece in read if piece.axis == axis] for axis in (outer, inner)]
    if not any(steps):
        return True
    if any(len(pieces) != 1 for pieces in steps):
        return False
    (outer_piece,), (inner_piece,) = steps
    covers_axes = (outer_piece.extent, inner_piece.extent) == (extents[outer], extents[inner])
    return covers_axes and outer_piece.stride == inner_piece.stride * inner_piece.extent


def _is_same(expression: tvm.ir.Expr, reference: tvm.ir.Expr) -> bool:
    return isinstance(expression, tvm.runtime.Object) and expression.same_as(reference)
