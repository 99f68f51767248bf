"""Implementations `winograd2`, `winograd4`, `winograd6`: 3x3 convolutions by minimal filtering.

After "Fast Algorithms for Convolutional Neural Networks" (Lavin and Gray, arXiv:1509.09308, 2015).
`winograd2` is F(2x2, 3x3): a tile of 2 x 2 outputs takes 16 products, where the direct convolution
takes 2 * 2 * 3 * 3 = 36. `winograd4` is F(4x4, 3x3): 36 products instead of 144, and `winograd6` 64
instead of 324. Tiles of a dilated convolution have dilated rows and columns; a volume is
computed slice by slice. The kernel is transformed when the model is built. `filtering` has the
stages, `templates/winograd.py` their schedule.

Example: an image [1, 56, 56, 64] in tiles of 4 x 4 has 14 * 14 = 196 tiles; the product becomes 36
matrix products of [196, 64] and [64, outputs], one for each position in a tile.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import Analyzer

from autopipe.compiler.dynamic_sizes.kernel_sizes import bind_likely_sizes
from autopipe.schedules.analysis.blocks import SPATIAL, Extent, extent_of, product_of
from autopipe.schedules.analysis.convolution import Convolution, match_convolution
from autopipe.schedules.analysis.filtering_cost import (
    BYTES,
    Filtering,
    estimate_direct,
    estimate_filtering,
)
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.implementations.filtering import KERNEL, Slices, Tiling, build_convolution
from autopipe.schedules.templates.winograd import WINOGRAD

_MARGIN = 1.2
"""Safety factor of an estimated gain."""

WIDEST: Final = 4
"""Largest tile, in rows and columns, with a moderate rounding error and kernel size."""

_LARGE = 1.25
"""Further safety factor of larger tiles: twice the rounding error, and 1.8 times the weights."""


@dataclass(frozen=True, slots=True)
class Winograd:
    """The algorithm for one size of tile."""

    size: int
    """Rows and columns of a tile of the output: 2, 4 or 6."""
    FAST: bool = True

    @property
    def NAME(self) -> str:  # noqa: N802 - a constant of a module
        """Name in YAML, records and reports."""
        return f"winograd{self.size}"

    def rewrite(self, workload: tvm.IRModule) -> tvm.IRModule | None:
        """Rewrite a 3x3 convolution to minimal filtering, or return None for another workload."""
        convolution = _match_winograd(workload)
        if convolution is None:
            return None
        tiling = self._find_tiling(convolution, workload)
        if tiling is None:
            return None
        body = _build_body(convolution, tiling)
        return tvm.IRModule({"main": workload["main"].with_body(body)})

    def _find_tiling(self, convolution: Convolution, workload: tvm.IRModule) -> Tiling | None:
        """Return the tiling of the output; None for dynamic shapes without specialized sizes."""
        shape, dilation = _to_image_shape(convolution), _read_dilation(convolution)
        if all(isinstance(extent, int) for extent in shape):
            return Tiling.of(shape, self.size, dilation)
        instance = bind_likely_sizes(workload)
        likely = instance and _match_winograd(instance)
        if likely is None:
            return None
        specialized_tiling = Tiling.of([int(n) for n in likely.result.shape], self.size, dilation)
        return Tiling.of(shape, self.size, dilation, specialized_tiling)

    def gain(self, workload: tvm.IRModule, hardware: HardwareParams) -> float:
        """Return the estimated speed relative to `direct`, or 0 for other workloads.

        With dynamic shapes, it is that at specialized sizes.
        """
        convolution = _match_winograd(bind_likely_sizes(workload) or workload)
        shape = _to_image_shape(convolution) if convolution else []
        extents = [extent for extent in shape if isinstance(extent, int)]
        if convolution is None or len(extents) < len(shape):
            return 0.0
        *taps, _, _, inputs, outputs = (int(n) for n in convolution.kernel.shape)
        inputs = math.prod((*taps, inputs))
        tiling = Tiling.of(shape, self.size, _read_dilation(convolution))
        filtering = Filtering((self.size + KERNEL - 1) ** 2, int(tiling.padded), inputs, outputs)
        cycles = estimate_filtering(filtering, WINOGRAD.fill(filtering, hardware), hardware)
        lanes = hardware.lanes(8 * BYTES)
        # a direct convolution pads its last vector
        padded_outputs = -(-outputs // lanes) * lanes
        products = KERNEL**2 * inputs * padded_outputs * math.prod(extents[:3])
        margin = _MARGIN * (_LARGE if self.size > WIDEST else 1)
        return estimate_direct(products, KERNEL**2 * inputs * outputs, hardware) / cycles / margin


winograd2: Final = Winograd(2)
winograd4: Final = Winograd(4)
winograd6: Final = Winograd(6)


@lru_cache(maxsize=4)
def _match_winograd(workload: tvm.IRModule) -> Convolution | None:
    """Return the convolution if it is 3x3 in float32 and its kernel is a weight, or else None.

    A kernel of a volume spans an odd number of slices: vectors that divide the channels of all of
    these then divide the channels of one.
    """
    convolution = match_convolution(workload, KERNEL)
    if convolution is None or not convolution.constant:
        return None
    if any(int(taps) % 2 == 0 for taps in convolution.kernel.shape[:-4]):
        return None
    dtypes = {
        str(buffer.dtype) for buffer in (convolution.data, convolution.kernel, convolution.result)
    }
    return convolution if dtypes == {"float32"} else None


def _to_image_shape(convolution: Convolution) -> list[Extent]:
    """Return the shape of the result as `[images, rows, columns, channels]`.

    Example: the volume [2, 8, 32, 32, 16] has 16 images, its slices: [16, 32, 32, 16].
    """
    *images, height, width, channels = (extent_of(n) for n in convolution.result.shape)
    return [product_of(images), height, width, channels]


def _read_dilation(convolution: Convolution) -> tuple[int, int]:
    """Return the dilation of rows and columns."""
    *_, row_dilation, column_dilation = convolution.dilation
    return row_dilation, column_dilation


def _build_body(convolution: Convolution, tiling: Tiling) -> SBlockRealize:
    """Build the root block: the stages of filtering, then the epilogue of the convolution."""
    data, kernel = (
        te.placeholder(b.shape, b.dtype) for b in (convolution.data, convolution.kernel)
    )
    *front, top, left = convolution.padding
    slices = None
    if front:
        counts = int(kernel.shape[0]), int(convolution.result.shape[1])
        slices = Slices(*counts, front[0], convolution.dilation[0])
    function = te.create_prim_func(
        [data, kernel, build_convolution(data, kernel, (top, left), tiling, slices)],
        index_dtype_override=str(convolution.data.shape[0].ty.dtype),
    )
    placeholders, tiles = function.params[:2], function.params[2]
    parameters = dict(zip(placeholders, (convolution.data, convolution.kernel), strict=True))
    stages = function.body.block
    nests = [
        *_replace_variables(stages.body, parameters),
        _build_output_loops(convolution, tiles, tiling),
    ]
    buffers = [*stages.alloc_buffers, tiles]
    root = SBlock([], [], [], "root", tirx.SeqStmt(nests), alloc_buffers=buffers)
    return SBlockRealize([], True, root)  # noqa: FBT003 - TVM's signature


def _build_output_loops(convolution: Convolution, tiles: tvm.ir.Var, tiling: Tiling) -> tirx.Stmt:
    """Build the loops over the tiles that compute the epilogue of each element of a tile."""
    dtype = str(convolution.data.shape[0].ty.dtype)
    loops = [tirx.Var(name, dtype) for name in ("tile", "row", "column", "channel")]
    axes = [tirx.Var(f"v_{loop.name}", dtype) for loop in loops]
    image, top, left = tiling.origin(axes[0])
    row_step, column_step = tiling.apart
    images = [image]
    if len(convolution.result.shape) > len(axes):  # of a volume
        slices = convolution.result.shape[1]
        images = [image // slices, image % slices]
    place = [*images, top + axes[1] * row_step, left + axes[2] * column_step, axes[3]]
    body, reads, writes = _rewrite_epilogue(convolution, tiles, axes, place)
    if overhangs := _list_bounds(convolution, tiling, axes[0], place):
        body = tirx.IfThenElse(tirx.all(*overhangs), body, None)
    domains = [tvm.ir.Range(0, extent) for extent in tiles.shape]
    iters = [tirx.IterVar(d, a, SPATIAL) for d, a in zip(domains, axes, strict=True)]
    block = SBlock(iters, reads, writes, convolution.after.name_hint, body)
    nest: tirx.Stmt = SBlockRealize(loops, True, block)  # noqa: FBT003 - TVM's signature
    for loop, domain in reversed(list(zip(loops, domains, strict=True))):
        nest = tirx.For(loop, domain.min, domain.extent, tirx.ForKind.SERIAL, nest)
    return nest


def _list_bounds(
    convolution: Convolution, tiling: Tiling, tile: tvm.ir.Expr, place: Sequence[tvm.ir.Expr]
) -> list[tvm.ir.Expr]:
    """Return the conditions under which an element of a tile is inside the output."""
    *_, height, width, _ = convolution.result.shape
    conditions = []
    if tiling.fills:
        conditions.append(tile < tiling.count)
    for index, extent, step in zip(place[-3:-1], (height, width), tiling.apart, strict=True):
        if not Analyzer().can_prove_equal(extent % (tiling.size * step), 0):
            conditions.append(index < extent)
    return conditions


def _rewrite_epilogue(
    convolution: Convolution,
    tiles: tvm.ir.Var,
    axes: Sequence[Any],
    place: Sequence[Any],
) -> Sequence[Any]:
    """Return body, reads and writes of the epilogue: it reads a tile, and writes at `place`."""
    after, index_type = convolution.after, axes[0].ty
    indices = dict(zip((axis.var for axis in after.iter_vars), place, strict=True))
    element = [
        tvm.ir.Range.from_min_extent(axis, tirx.const(1, str(index_type.dtype))) for axis in axes
    ]

    def load(node: tvm.ir.TensorLoad) -> tvm.ir.Expr:
        return tirx.BufferLoad(tiles, axes) if node.source.same_as(convolution.result) else node

    def region(node: tvm.ir.TensorRegion) -> tvm.ir.TensorRegion:
        return (
            tirx.BufferRegion(tiles, element) if node.source.same_as(convolution.result) else node
        )

    changes = (
        (tvm.ir.Var, lambda var: indices.get(var, var)),
        (tvm.ir.TensorLoad, load),
        (tvm.ir.TensorRegion, region),
    )
    return [
        tvm_ffi.structural_map(part, changes) for part in (after.body, after.reads, after.writes)
    ]


def _replace_variables(node: tvm.ir.Node, places: Mapping[Any, Any]) -> Any:  # noqa: ANN401 - any node
    return tvm_ffi.structural_map(node, (tvm.ir.Var, lambda var: places.get(var, var)))
