"""Recognizes a plain convolution of images or volumes in a fused PrimFunc, from its TIR alone.

TOPI writes a convolution as two blocks, padding and sum. Whether two blocks are a convolution is
decided by comparison with the blocks that TOPI writes for the same shapes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import te, topi
from tvm.s_tir import SBlock, Schedule
from tvm.sym import Analyzer
from tvm.tirx import IntImm, Sub

from autopipe.compiler.find_nodes import is_among
from autopipe.compiler.graph.weights import list_weights
from autopipe.schedules.analysis.blocks import is_spatial
from autopipe.schedules.primitives import make_schedule

_LAYOUTS: Final = {4: ("NHWC", "HWIO"), 5: ("NDHWC", "DHWIO")}
"""Layouts of data and kernel, by their number of axes."""

_VOLUME_AXES: Final = 5
"""Number of axes of a volume: batch, slices, rows, columns, channels."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution in NHWC and HWIO, or NDHWC and DHWIO, with stride 1 and without groups."""

    data: Any
    """The buffer of the image `[batch, rows, columns, channels]`, before any padding. A volume has
    `[batch, slices, rows, columns, channels]`."""
    kernel: Any
    """The buffer of the weights, `[rows, columns, channels in, channels out]`; those of a volume
    begin with slices, too."""
    constant: bool
    """Whether the kernel is a weight with a free layout."""
    padding: tuple[int, ...]
    """Rows of zeros above the image and columns of them to its left; slices before a volume."""
    dilation: tuple[int, ...]
    """The dilation of rows and columns; slices first in a volume."""
    result: Any
    """The buffer of the sums, `[batch, rows, columns, channels]`, or those of a volume."""
    after: SBlock
    """The block that computes each element of the output from one sum."""


def match_convolution(module: tvm.IRModule, size: int) -> Convolution | None:
    """Return the convolution that `main` computes, or None if it computes something else.

    `size` is the number of rows, and of columns, that the kernel must have.
    """
    sch = make_schedule(module)
    try:
        blocks = sch.get_child_blocks(sch.get_sblock("root"))
        sums = [block for block in blocks if not is_spatial(sch.get(block))]
        if len(blocks) < 2 or sums != blocks[1:2]:  # noqa: PLR2004 - padding, sum, epilogue
            return None
        pad, total = (sch.get(block) for block in blocks[:2])
        if not _has_image_operands(pad, total, size):
            return None
        after = _merge_epilogue(sch, blocks[1:])
        result = sch.get(blocks[1]).writes[0].source
    except RuntimeError:  # TIR without blocks, or a block that cannot be inlined
        return None
    steps = _find_padding_dilation(pad, total)
    if steps is None or not _is_elementwise(after, result):
        return None
    data, kernel = pad.reads[0].source, total.reads[1].source
    constant = is_among(kernel, list_weights(module["main"]))
    return Convolution(data, kernel, constant, *steps, result, after)


def _merge_epilogue(sch: Schedule, blocks: Sequence[Any]) -> SBlock:
    """Merge the blocks after the first one into one block; a copy if there is none."""
    first, *epilogue = blocks
    if not epilogue:
        return sch.get(sch.cache_write(first, 0, "global"))
    for block in epilogue[:-1]:
        sch.compute_inline(block)
    return sch.get(epilogue[-1])


def _has_image_operands(pad: SBlock, total: SBlock, size: int) -> bool:
    """Tell whether `pad` reads an image, and `total` reads its result and a kernel of that size."""
    if [len(block.reads) for block in (pad, total)] != [1, 2]:
        return False
    if not pad.writes[0].source.same_as(total.reads[0].source):
        return False
    image_shape, padded_shape, kernel_shape = (
        read.source.shape for block in (pad, total) for read in block.reads
    )
    axes = len(image_shape)
    if axes not in _LAYOUTS or any(len(shape) != axes for shape in (padded_shape, kernel_shape)):
        return False
    # batch, rows and columns of an image may be dynamic
    static_extents = (*kernel_shape, image_shape[-1], padded_shape[-1])
    if axes == _VOLUME_AXES:
        static_extents = (*static_extents, *image_shape, *padded_shape)
    square = kernel_shape[-4] == kernel_shape[-3] == size
    return all(isinstance(extent, IntImm) for extent in static_extents) and square


def _find_padding_dilation(
    pad: SBlock, total: SBlock
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the padding before rows and columns, or slices too, and the dilation along them.

    None if these are not the blocks that TOPI writes for such a convolution.
    """
    padded_image, data, kernel = total.reads[0].source, pad.reads[0].source, total.reads[1].source
    offsets = [_read_offset(index.min) for index in pad.reads[0].region]
    sizes = zip(padded_image.shape, data.shape, offsets, strict=True)
    ends = [Analyzer().simplify(whole - part - start) for whole, part, start in sizes]
    extents = zip(padded_image.shape[1:-1], total.writes[0].source.shape[1:-1], strict=True)
    kernel_spans = [Analyzer().simplify(whole - out) for whole, out in extents]
    if not all(isinstance(number, IntImm) for number in (*ends, *kernel_spans)):
        return None
    taps = zip(kernel_spans, kernel.shape[:-2], strict=True)
    dilation = tuple(int(far) // (int(n) - 1) if int(n) > 1 else 1 for far, n in taps)
    if min(dilation) < 1:
        return None
    x, w = (te.placeholder(buffer.shape, buffer.dtype) for buffer in (data, kernel))
    padding = [*offsets[1:-1], *map(int, ends[1:-1])]
    try:
        y = topi.nn.conv(x, w, 1, padding, list(dilation), 1, *_LAYOUTS[len(x.shape)])
    except (RuntimeError, ValueError):
        return None
    function = te.create_prim_func([x, w, y], index_dtype_override=str(data.shape[0].ty.dtype))
    sch = make_schedule(tvm.IRModule({"main": function}))
    topi_blocks = map(sch.get, sch.get_child_blocks(sch.get_sblock("root")))
    is_equal = [
        tvm_ffi.structural_equal(ours, theirs, map_free_vars=True)
        for ours, theirs in zip((pad, total), topi_blocks, strict=True)
    ]
    return (tuple(offsets[1:-1]), dilation) if all(is_equal) else None


def _read_offset(index: Any) -> int:  # noqa: ANN401 - an expression
    """Return n for an index `axis - n`, or 0 for any other index."""
    offset = index.b if isinstance(index, Sub) else None
    return int(offset) if isinstance(offset, IntImm) else 0


def _is_elementwise(block: SBlock, result: tvm.ir.Var) -> bool:
    """Tell whether a block computes each element from the element of a buffer at the same index."""
    axes = [axis.var for axis in block.iter_vars]
    reads = [read.region for read in block.reads if read.source.same_as(result)]
    extents = [axis.dom.extent for axis in block.iter_vars]
    return (
        tvm_ffi.structural_equal(extents, list(result.shape))
        and len(reads) == 1
        and all(part.min.same_as(axis) for part, axis in zip(reads[0], axes, strict=True))
        and all(int(part.extent) == 1 for part in reads[0])
    )
