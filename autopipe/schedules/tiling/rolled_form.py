"""Recognizes a convolution, windows behind it and a product behind those, from the TIR alone.

This is `match` of the template `rolling`: a function is cut into parts, each with one reduction,
and each part is recognized as if it were a function of its own.
"""

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, Final

import tvm
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, Schedule
from tvm.sym import detect_linear_equation
from tvm.tirx import BufferStore

from autopipe.compiler.find_nodes import is_among, list_loads
from autopipe.schedules.analysis import windows as window_forms
from autopipe.schedules.analysis.blocks import Extent, is_copy, is_spatial, is_static
from autopipe.schedules.analysis.product import Product
from autopipe.schedules.analysis.steps import Steps
from autopipe.schedules.analysis.windows import Windows
from autopipe.schedules.primitives import inline_blocks, make_schedule
from autopipe.schedules.tiling import form
from autopipe.schedules.tiling.form import Contraction
from autopipe.schedules.tiling.padding import Padding
from autopipe.schedules.tiling.rolling import Border

_IMAGE_AXES: Final = 4
"""Axes of an image: batch, height, width, channels."""

_FLOAT: Final = 32
"""Bits of the elements of all parts."""


@dataclass(frozen=True, slots=True)
class RolledParts:
    """The parts of a rolled function, which the knobs depend on."""

    parts: tuple[tvm.IRModule, ...]
    """The convolution, the windows, and the product behind them, if there is one."""
    first: Contraction
    """The convolution of one row of the image; `last` is the product of one row of the result."""
    windows: Windows
    last: Contraction | None
    image: tuple[int, ...]
    """Shape of the first convolution's output: batch, height, width, channels."""
    result: tuple[int, ...]
    """Shape of the windows' output."""
    height: int
    """Rows of the image that a window takes."""
    stride: int
    """Rows of the image from one row of the result to the next."""


def match_rolled_parts(sch: Schedule) -> RolledParts | None:
    """Match a function of three parts, or return None if it is for another template."""
    steps = Steps.of(sch.mod["main"])
    if steps is None or not all(map(is_static, steps.blocks)):
        return None
    if not all(isinstance(block.body, BufferStore) for block in steps.blocks):
        return None
    sums = [i for i, block in enumerate(steps.blocks) if not is_spatial(block)]
    if len(sums) not in (2, 3):
        return None
    cuts = [_find_cut(steps, one, other) for one, other in itertools.pairwise(sums)]
    ends = [0, *cuts, len(steps.blocks)]
    parts = tuple(steps.part(start, end) for start, end in itertools.pairwise(ends))
    part_outputs = [list_output_buffers(part) for part in parts]
    if any(len(results) != 1 for results in part_outputs):
        return None
    if any(buffer.same_as(p) for (buffer,) in part_outputs[:-1] for p in steps.function.params):
        return None
    return _match_parts(parts)


def _find_cut(steps: Steps, reduction: int, next_reduction: int) -> int:
    """Return the index of the first block behind a reduction that belongs to the next reduction."""
    between = range(reduction + 1, next_reduction)
    moving = (i for i in between if is_copy(steps.blocks[i]) or Padding.of(steps.blocks[i]))
    return next(moving, next_reduction)


def list_output_buffers(part: tvm.IRModule) -> list[Any]:
    """Return the parameters of a part that it writes: its outputs."""
    written_buffers = [block.body.buffer for block in _list_blocks(part)]
    return [param for param in part["main"].params if is_among(param, written_buffers)]


def _list_blocks(part: tvm.IRModule) -> list[SBlock]:
    sch = make_schedule(part)
    return [sch.get(rv) for rv in sch.get_child_blocks(sch.get_sblock("root"))]


def _match_parts(parts: tuple[tvm.IRModule, ...]) -> RolledParts | None:
    """Match the parts of a function, or return None if one is of another form."""
    first = _restrict_to_row(form.match_contraction(make_schedule(parts[0])))
    last = _restrict_to_row(form.match_contraction(make_schedule(parts[2]))) if parts[2:] else None
    windows = window_forms.match_windows(make_schedule(parts[1]))
    if first is None or windows is None or not _is_plain(windows) or (parts[2:] and last is None):
        return None
    rows, border = (
        _find_window_rows(parts[1], windows),
        find_border(parts[1], list_output_buffers(parts[0])[0]),
    )
    if rows is None or border is None or first.bits != _FLOAT or windows.bits != _FLOAT:
        return None
    height, stride = rows
    is_rollable = _is_in_order(parts[0], first) and not _has_other_readers(
        parts, windows, border.source
    )
    if last is not None:
        is_rollable = (
            is_rollable and _is_in_order(parts[1], windows) and _is_pointwise_product(parts, last)
        )
    result = windows.extents
    inside = border.outer[1] >= (result[1] - 1) * stride + height
    one_row = replace(windows, extents=(1, 1, *result[2:]))
    rolled_parts = RolledParts(parts, first, one_row, last, border.inner, result, height, stride)
    return rolled_parts if is_rollable and inside else None


def _is_plain(windows: Windows) -> bool:
    """Tell whether windows with weights go over an NHWC image."""
    image = len(windows.extents) == _IMAGE_AXES and windows.across == (1,) and not windows.along
    return image and windows.weights is not None and windows.wide


def _restrict_to_row(contraction: Contraction | None) -> Contraction | None:
    """Restrict a product with packed weights to one row of the image; None for other functions."""
    if contraction is None or len(contraction.extents) != _IMAGE_AXES or not contraction.lines.free:
        return None
    lines = contraction.lines
    has_whole_columns = (
        lines.columns == (3,) and lines.granule == contraction.extents[3] and True in lines.packed
    )
    if (
        not has_whole_columns
        or lines.rows not in ((0, 1, 2), (1, 2), (2,))
        or contraction.results != 1
    ):
        return None
    return replace(
        contraction, extents=(1, 1, *contraction.extents[2:]), lines=replace(lines, rows=(2,))
    )


def _is_in_order(part: tvm.IRModule, form: Contraction | Windows) -> bool:
    """Tell whether each block from the sum on writes an element at its own index."""
    names = {form.name, *form.after}
    return all(
        extent == 1 or index.same_as(axis.var)
        for block in _list_blocks(part)
        if block.name_hint in names
        for index, axis, extent in zip(
            block.body.indices, block.iter_vars, map(int, block.body.buffer.ty.shape), strict=False
        )
    )


def _is_pointwise_product(parts: tuple[tvm.IRModule, ...], last: Contraction) -> bool:
    """Tell whether a product sums over the channels of one pixel of what the windows write."""
    sch, image = make_schedule(parts[2]), list_output_buffers(parts[1])[0]
    inline_blocks(sch, last.inlined)
    product = Product.of(sch.get(sch.get_sblock(last.name)))
    if product is None or last.before or math.prod(last.terms) != int(image.ty.shape[3]):
        return False
    reads = [load for load in product.loads if load.source.same_as(image)]
    output_reads = [
        load
        for block in _list_blocks(parts[2])
        if block.name_hint in last.after
        for load in list_loads(block.body.value)
    ]
    is_read_once = len(reads) == 1 and not any(load.source.same_as(image) for load in output_reads)
    return is_read_once and all(
        extent == 1 or index.same_as(axis)
        for index, axis, extent in zip(
            reads[0].indices[1:3], product.axes[1:3], product.extents[1:3], strict=True
        )
    )


def _has_other_readers(
    parts: tuple[tvm.IRModule, ...], windows: Windows, image: tvm.ir.Var
) -> bool:
    """Tell whether anything but the windows reads what the first convolution writes."""
    after = [block for block in _list_blocks(parts[1]) if block.name_hint in windows.after]
    other_blocks = [*after, *(block for part in parts[2:] for block in _list_blocks(part))]
    return any(
        load.source.same_as(image) for block in other_blocks for load in list_loads(block.body)
    )


def _find_window_rows(part: tvm.IRModule, windows: Windows) -> tuple[int, int] | None:
    """Return (rows of the image that a window takes, stride of the windows in rows).

    None if a window leaves rows out, or reads other images or channels than those it writes.
    """
    sch = make_schedule(part)
    window_forms.inline_copies(sch)
    block = sch.get(sch.get_sblock(windows.name))
    extents = [int(axis.dom.extent) for axis in block.iter_vars]
    (data,) = [at for at in range(len(block.reads)) if at != windows.weights]
    steps = [
        {axis: step for axis, step in enumerate(index[:-1]) if step and extents[axis] > 1}
        for index in window_forms.find_read_steps(block, data)
    ]
    if len(steps) != _IMAGE_AXES or any(steps[at] not in ({}, {at: 1}) for at in (0, 3)):
        return None
    rows = dict(steps[1])
    stride = rows.pop(1, 1)
    window_axes = [axis for axis in rows if axis >= _IMAGE_AXES]
    if (
        len(window_axes) != len(rows)
        or len(window_axes) > 1
        or 1 in steps[2]
        or {*rows.values()} - {1}
    ):
        return None
    return math.prod(extents[axis] for axis in window_axes), stride


def find_border(part: tvm.IRModule, source: tvm.ir.Var) -> Border | None:
    """Return the border of the windows around the first convolution; None if its values change."""
    sch = make_schedule(part)
    window_forms.inline_copies(sch)
    before = [sch.get(rv) for rv in sch.get_child_blocks(sch.get_sblock("root"))]
    before = list(itertools.takewhile(is_spatial, before))
    if not before:
        return Border(source, source, 0, 0, tvm.tirx.const(0, source.ty.dtype))
    padding = Padding.of(before[0]) if len(before) == 1 else None
    if padding is None or not isinstance(padding.value, TensorLoad):
        return None
    if not padding.value.source.same_as(source) or len(padding.axes) != _IMAGE_AXES:
        return None
    bounds = [one or (0, size) for one, size in zip(padding.inside, padding.extents, strict=True)]
    sizes = tuple(map(int, source.ty.shape))
    fills_bounds = all(
        high - low == size and (at in (1, 2) or low == 0)
        for at, ((low, high), size) in enumerate(zip(bounds, sizes, strict=True))
    )
    is_shifted = all(
        _is_moved(index, axis, low, size)
        for index, axis, (low, _), size in zip(
            padding.value.indices, padding.axes, bounds, sizes, strict=True
        )
    )
    top, left = bounds[1][0], bounds[2][0]
    if not (fills_bounds and is_shifted and isinstance(top, int) and isinstance(left, int)):
        return None
    return Border(source, padding.target, top, left, padding.border)


def _is_moved(index: Any, axis: tvm.ir.Var, low: Extent, size: int) -> bool:  # noqa: ANN401 - TVM objects
    """Tell whether an index is an axis without the border before it."""
    coefficients = detect_linear_equation(index, [axis])
    steps = [int(step) for step in coefficients] if len(coefficients) == 2 else []  # noqa: PLR2004
    return steps == [1, -low] or (size == 1 and steps in ([0, 0], [1, 0]))
