"""Describes the memory accesses of a function without reductions, from its TIR alone.

Each read is described as `AxisPiece`s of the output's axes, by TVM's `normalize_to_iter_sum`.

Example: the transpose y[b, i, j] = x[b, j, i] of [2, 8, 12] has the output extents (2, 12, 8) and
one read of three pieces: axis 0 with stride 96, axis 1 with stride 1, axis 2 with stride 12. Its
`tail` is 1. An elementwise function of [2, 8, 12] has `tail` 3: its axes collapse into one axis
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
from autopipe.schedules.analysis.boundaries import (
    divide_last_axis,
    find_axis_stride,
    nodes_of,
)
from autopipe.schedules.analysis.choices import can_read_both, has_indirect_choice
from autopipe.schedules.analysis.effort import Effort, estimate_element_effort
from autopipe.schedules.analysis.expressions import is_branch
from autopipe.schedules.analysis.rewritten_axes import use_written_axes
from autopipe.schedules.analysis.simple_indices import DIVISIONS, simplify_block
from autopipe.schedules.primitives import replace_block

_WIDE: Final = 64


@dataclass(frozen=True, slots=True)
class AxisPiece:
    """A part of an axis of the output along which a read has a constant stride."""

    axis: int
    """Position of the axis."""
    lower: int
    """Steps along the axis for one step of the piece."""
    extent: int
    """Number of steps of the piece."""
    stride: int
    """Stride of the read for one step of the piece, in elements."""


@dataclass(frozen=True, slots=True)
class Movement:
    """The loads of a function without reductions, by the axes of its output."""

    extents: tuple[int, ...]
    """Extents of the output's axes."""
    bits: int
    """Size of the largest element that is read or written, in bits."""
    reads: tuple[tuple[AxisPiece, ...] | None, ...]
    """The pieces of each read; None where it depends on data, as in a gather."""
    parts: tuple[int, ...]
    """Extents into which conditions divide the last axis, as in a concatenation; () without."""
    tail: int
    """Number of last axes that collapse into one: every read is linear in them."""
    effort: Effort = field(default_factory=Effort)
    """The estimated cost of an element on one thread."""
    folded: bool = False
    """Whether a read divides an index, as the flattening of an image does."""
    mixed: bool = False
    """Whether the output is bool, or 64-bit elements are read for a narrower output, or the value
    is computed from the last index, as in a range. TVM's vectors of these are slow; LLVM's
    auto-vectorizer is better."""
    indexed: bool = False
    """Whether the value depends on the last index, as in a unit matrix, and no condition divides
    that axis."""
    copies: bool = False
    """Whether elements are only copied."""
    elsewhere: bool = False
    """Whether the value depends on the index of an axis other than the last one."""
    chooses: bool = False
    """Whether neighbours along the last axis may select different operands. TVM's vectors evaluate
    both; LLVM may make branches."""
    looks_up: bool = False
    """Whether the operands of a select are gathered along the last axis."""
    both: bool = False
    """Whether both operands may always be loaded, and no condition divides the last axis."""
    in_steps: bool = False
    """Whether rows are read with a stride or divided, as template `elementwise` detects."""
    is_dynamic: bool = False
    """Whether shapes are dynamic; extents are those at specialized sizes then."""

    @property
    def backwards(self) -> bool:
        """Tell whether a read has a negative stride, which TVM's vectors load by elements."""
        return any(read and find_innermost(read, self.extents).stride < 0 for read in self.reads)

    @property
    def scattered(self) -> bool:
        """Tell whether some read has no constant stride along the last axis.

        Examples: a gather, a clamped index, a circular shift. TVM loads these element by element in
        its vectors, and LLVM's auto-vectorizer is better.
        """
        return None in self.reads

    @property
    def run(self) -> int:
        """Return the number of neighbouring outputs with one source and one stride in each read."""
        runs = (find_innermost(read, self.extents).extent for read in self.reads if read)
        return math.gcd(self.extents[-1], *self.parts, *runs)


def find_innermost(read: tuple[AxisPiece, ...], extents: tuple[int, ...]) -> AxisPiece:
    """Return the innermost piece of a read along the last axis; its stride may be 0."""
    last = len(extents) - 1
    pieces = sorted((piece for piece in read if piece.axis == last), key=lambda piece: piece.lower)
    if pieces and pieces[0].lower == 1:
        return pieces[0]
    return AxisPiece(last, 1, pieces[0].lower if pieces else extents[-1], 0)


def inline_into_last(sch: Schedule) -> SBlockRV:
    """Inline all blocks into the last one and return it. Raises ScheduleError where TVM refuses.

    A block with permuted or divided store indices gets the axes of its output. Example:
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
    """Replace the store index 0 of an axis of extent 1 by the axis variable."""
    block, store = sch.get(rv), sch.get(rv).body
    indices = [
        index if int(axis.dom.extent) > 1 else axis.var
        for axis, index in zip(block.iter_vars, store.indices, strict=True)
    ]
    region = store.buffer[tuple(slice(index, index + 1) for index in indices)]
    body = tvm.tirx.BufferStore(store.buffer, store.value, indices)
    replace_block(sch, rv, body, [region])


def match_movement(sch: Schedule) -> Movement | None:
    """Describe the loads of a function, or return None if it reduces or has several outputs."""
    sch = sch.copy()
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    if not all(is_spatial(sch.get(block)) and is_static(sch.get(block)) for block in blocks):
        return None
    try:
        return match_block_movement(sch.get(inline_into_last(sch)))
    except ScheduleError:  # more than one output
        return None


def match_block_movement(block: SBlock) -> Movement | None:
    """Describe the loads of a block without reductions, or return None if it is no assignment."""
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
    parts = divide_last_axis(value, block)
    indexed = len(axes) - 1 in used_axes and not parts
    chooses = any(_is_choice(node, axes[-1]) for node in nodes_of(value))
    dtypes = [block.writes[0].source.dtype, *(load.source.dtype for load in loads)]
    return Movement(
        extents=extents,
        bits=max(map(element_bits, dtypes)),
        reads=tuple(reads),
        parts=parts,
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
    """Return the base offset and the pieces of a load; None if they depend on data."""
    total = _find_read_offset(load, block)
    pieces = _to_axis_pieces(total, [axis.var for axis in block.iter_vars])
    if pieces is None or not isinstance(total.base, tvm.tirx.IntImm):
        return None
    return int(total.base), pieces


def _estimate_new_elements(
    load: TensorLoad, read: tuple[AxisPiece, ...] | None, block: SBlock
) -> float:
    """Return the new elements that a load takes from memory for an output; 0 for a large stride."""
    if read is None:
        return float(find_axis_stride(load, block.iter_vars[-1].var) in {0, 1})
    piece = find_innermost(read, tuple(int(axis.dom.extent) for axis in block.iter_vars))
    if piece.stride:
        return float(abs(piece.stride) == 1)
    is_split = piece.extent < int(block.iter_vars[-1].dom.extent)
    is_shift = piece.extent & (piece.extent - 1) == 0  # else LLVM does not vectorize
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
    """Return the offset of a load as TVM's sum of split axes (`IterSumExpr`)."""
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
    """Return the positions of the axes that occur among nodes."""
    return {at for node in nodes for at, axis in enumerate(axes) if _is_same(node, axis)}


def _count_fused_axes(
    extents: tuple[int, ...], reads: list[tuple[AxisPiece, ...] | None], used_axes: set[int]
) -> int:
    """Count the last axes that collapse into one in every read."""
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
    """Tell whether a step along `outer` has the stride of the whole extent of `inner`."""
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
