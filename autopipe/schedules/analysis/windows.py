"""Recognizes a function that reduces windows of its input, from its TIR alone.

These are depthwise convolutions, pooling and means over an image: each output reduces its own
window, and products with weights are not summed over channels.

Example: max pooling, 3x3 with stride 2, of [1, 56, 56, 96] in NHWC has `extents` (1, 28, 28, 96)
and `window` (3, 3). Along the width, the last but one axis, go the window's axis 1 (`across`), with
`stride` 2 and `reach` 3. In NCHW, windows extend along the last axis, too: `along` is true.
"""

import math
from dataclasses import dataclass
from typing import Final

from tvm.s_tir import SBlock, Schedule
from tvm.sym import detect_linear_equation

from autopipe.compiler.find_nodes import is_among
from autopipe.compiler.graph import weights
from autopipe.schedules.analysis.blocks import (
    SPATIAL,
    extents_of,
    find_output_bits,
    is_copy,
    is_product,
    is_spatial,
    is_static,
)
from autopipe.schedules.analysis.effort import estimate_call_ns
from autopipe.schedules.analysis.single_reduction import SingleReduction, split_at_reduction

NARROW: Final = 4
"""Elements in the shortest profitable vector."""

_VECTOR: Final = 8
"""Minimum elements for overlapping vectors, where vectors of `NARROW` do not divide the axis."""

Index = list[tuple[int, ...]]
"""For each axis of a tensor, the step of its index along each axis of a block, then its offset;
[] if not constant."""


@dataclass(frozen=True)
class Windows(SingleReduction):
    """The sizes and properties of a window reduction that determine its schedules.

    The last spatial axis is vectorized, also in the input.
    """

    bits: int
    """Size of an element of the result, in bits."""
    window: tuple[int, ...]
    """Extents of the reduction axes."""
    across: tuple[int, ...]
    """Positions of the reduction axes along the last but one spatial axis."""
    stride: int
    """Elements of the input from one output to its neighbour along that axis."""
    reach: int
    """Elements of the input from the first to the last of a window along that axis."""
    along: bool
    """Whether windows also extend along the last axis, as they do in NCHW."""
    weights: int | None
    """Position of the operand with weights along the last axis; None without one."""
    free: bool
    """Whether these weights have a free layout."""
    once: bool = False
    """Whether no element of the input is read for two outputs, as in sums along an axis."""

    calls_ns: float = 0.0
    """Time of elementary functions, such as square roots of results, on one core."""

    @property
    def computes(self) -> bool:
        """Tell whether elementary functions are computed."""
        return self.calls_ns > 0

    @property
    def wide(self) -> bool:
        """Tell whether the last axis can be vectorized: vectors divide it, or may overlap."""
        breadth = self.extents[-1]
        return breadth % NARROW == 0 or (breadth >= _VECTOR and self.may_overlap)

    @property
    def may_overlap(self) -> bool:
        """Tell whether tiles may overlap: they have two axes, and no window extends along the last.

        Such windows are padded plane by plane, for tiles that divide a plane.
        """
        return not self.along and len(self.extents) > 1

    @property
    def taps(self) -> int:
        """Return the number of elements in a window."""
        return math.prod(self.window)

    @property
    def steps(self) -> int:
        """Return the number of elements in all windows."""
        return math.prod(self.extents) * self.taps

    @property
    def input_elements(self) -> int:
        """Estimate the elements of the input, with equal strides along all axes of a window."""
        axes = sum(extent > 1 for extent in self.window)
        per_output = self.taps if self.once else min(self.taps, self.stride**axes)
        return math.prod(self.extents) * per_output

    @property
    def taps_across(self) -> int:
        """Return the number of elements of a window in one row of the input."""
        return math.prod(self.window[axis] for axis in self.across)


def inline_copies(sch: Schedule) -> None:
    """Inline the copies before the reduction. Raises ScheduleError where TVM refuses."""
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        if not is_spatial(sch.get(block)):
            break
        if is_copy(sch.get(block)) and sch.get_consumers(block):
            sch.compute_inline(block)


def match_windows(sch: Schedule) -> Windows | None:
    """Describe the window reduction of a function, or return None without one.

    Copies before the reduction count as inlined. Raises ScheduleError if TVM cannot inline one.
    """
    sch = sch.copy()
    inline_copies(sch)
    parts = split_at_reduction(sch)
    if parts is None:
        return None
    before, block, after = parts
    if len(block.writes) != 1 or not all(map(is_static, (*before, block, *after))):
        return None
    extents = extents_of(block)
    is_elementwise = all(extents_of(other) == extents for other in after)
    operands = _match_operands(block) if is_elementwise and extents else None
    if operands is None:
        return None
    data, weights = operands
    across, stride, reach = _describe_row(block, data)
    return Windows(
        name=block.name_hint,
        inlined=(),
        before=tuple(other.name_hint for other in before),
        after=tuple(other.name_hint for other in after),
        extents=extents,
        bits=find_output_bits(block),
        window=extents_of(block, spatial=False),
        across=across,
        stride=stride,
        reach=reach,
        along=_is_along(block, data),
        weights=weights,
        free=weights is not None and _is_free(sch, block, weights),
        once=all(sum(map(bool, part[:-1])) <= 1 for part in data),
        calls_ns=sum(map(estimate_call_ns, (block, *after))),
    )


def _match_operands(block: SBlock) -> tuple[Index, int | None] | None:
    """Return the index of the operand with windows, and the position of the weights, if any."""
    *_, last = spatial = [i for i, axis in enumerate(block.iter_vars) if axis.iter_type == SPATIAL]
    wide = [i for i in spatial if int(block.iter_vars[i].dom.extent) > 1]
    reads = [find_read_steps(block, position) for position in range(len(block.reads))]
    data = [
        i for i, index in enumerate(reads) if _is_indexed_by(index, wide) and index[-1][last] == 1
    ]
    weight_operands = [i for i in range(len(reads)) if i not in data]
    if len(data) != 1 or len(weight_operands) > 1 or bool(weight_operands) != is_product(block):
        return None
    index = reads[data[0]]
    if not weight_operands:
        return index, None
    if not reads[weight_operands[0]]:
        return None
    axes = [axis for axis in wide if _is_indexed_by(reads[weight_operands[0]], [axis])]
    if last in axes:
        return (index, weight_operands[0]) if axes == [last] else None
    return (index, None) if axes else None  # the same weights for all outputs: a matmul


def _describe_row(block: SBlock, data: Index) -> tuple[tuple[int, ...], int, int]:
    """Return `across`, `stride` and `reach` of `Windows`."""
    *_, rows = [0, *(i for i, axis in enumerate(block.iter_vars) if axis.iter_type == SPATIAL)][:-1]
    part = next((part for part in data[:-1] if part[rows]), None)
    if part is None:
        return (), 0, 1
    reductions = _list_reduction_axes(block)
    extents = extents_of(block, spatial=False)
    across = tuple(n for n, i in enumerate(reductions) if part[i])
    reach = 1 + sum(part[reductions[n]] * (extents[n] - 1) for n in across)
    return across, part[rows], reach


def _is_along(block: SBlock, data: Index) -> bool:
    extents = extents_of(block, spatial=False)
    return any(
        data[-1][axis] and extents[i] > 1 for i, axis in enumerate(_list_reduction_axes(block))
    )


def _is_indexed_by(index: Index, axes: list[int]) -> bool:
    """Tell whether the index of an operand depends on all of some axes."""
    return bool(index) and all(any(part[axis] for part in index) for axis in axes)


def find_read_steps(block: SBlock, position: int) -> Index:
    """Return the strides of the read at a position along the axes of a block."""
    axes = [axis.var for axis in block.iter_vars]
    parts = [detect_linear_equation(part.min, axes) for part in block.reads[position].region]
    constant = all(len(part) == len(axes) + 1 for part in parts)
    return [tuple(int(step) for step in part) for part in parts] if constant else []


def _list_reduction_axes(block: SBlock) -> list[int]:
    return [i for i, axis in enumerate(block.iter_vars) if axis.iter_type != SPATIAL]


def _is_free(sch: Schedule, block: SBlock, position: int) -> bool:
    """Tell whether an operand is a weight with a free layout."""
    source = block.reads[position].source
    return is_among(source, weights.list_weights(sch.mod["main"]))
