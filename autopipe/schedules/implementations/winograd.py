"""Implementations `winograd2` and `winograd4`: 3x3 convolutions by minimal filtering.

F(2x2, 3x3) takes 16 products where a direct convolution takes 36, F(4x4, 3x3) 36 for 144. The
kernel is transformed when the model is built.
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

from autopipe.schedules.analysis.blocks import SPATIAL
from autopipe.schedules.analysis.convolution import Convolution, recognize
from autopipe.schedules.analysis.filtering_cost import Filtering, direct, estimate
from autopipe.schedules.hardware import Hardware
from autopipe.schedules.implementations.filtering import KERNEL, Tiling, filtered
from autopipe.schedules.templates.winograd import fill

_MARGIN = 1.2
"""What an estimate must promise to be believed."""


@dataclass(frozen=True, slots=True)
class Winograd:
    """The algorithm for one size of tile."""

    size: int
    """Rows and columns of a tile of the output."""
    FAST: bool = True

    @property
    def NAME(self) -> str:  # noqa: N802 - a constant of a module
        """Name in YAML, records and reports."""
        return f"winograd{self.size}"

    def rewrite(self, workload: tvm.IRModule) -> tvm.IRModule | None:
        """Return the workload tile by tile, or None if it is not a plain 3x3 convolution."""
        found = _served(workload)
        if found is None:
            return None
        body = _body(found, Tiling.of([int(n) for n in found.result.shape], self.size))
        return tvm.IRModule({"main": workload["main"].with_body(body)})

    def gain(self, workload: tvm.IRModule, hardware: Hardware) -> float:
        """Estimate how many times faster than `direct` it is, or 0 if it does not serve it."""
        found = _served(workload)
        if found is None:
            return 0.0
        shape = [int(n) for n in found.result.shape]
        inputs, outputs = (int(n) for n in found.kernel.shape[2:])
        tiling = Tiling.of(shape, self.size)
        filtering = Filtering((self.size + KERNEL - 1) ** 2, tiling.padded, inputs, outputs)
        took = estimate(filtering, fill(filtering, hardware), hardware)
        products = KERNEL**2 * inputs * math.prod(shape)
        return direct(products, KERNEL**2 * inputs * outputs, hardware) / took / _MARGIN


winograd2: Final = Winograd(2)
winograd4: Final = Winograd(4)


@lru_cache(maxsize=4)
def _served(workload: tvm.IRModule) -> Convolution | None:
    """Return the convolution, if it is one of 3x3 and its kernel is a weight."""
    found = recognize(workload, KERNEL)
    if found is None or not found.constant:
        return None
    dtypes = {str(buffer.dtype) for buffer in (found.data, found.kernel, found.result)}
    return found if dtypes == {"float32"} else None


def _body(found: Convolution, tiling: Tiling) -> SBlockRealize:
    """Return the root block of the function: the stages by tile, then what follows the sum."""
    data, kernel = (te.placeholder(b.shape, b.dtype) for b in (found.data, found.kernel))
    function = te.create_prim_func(
        [data, kernel, filtered(data, kernel, found.padding, tiling)],
        index_dtype_override=str(found.data.shape[0].ty.dtype),
    )
    theirs, made = function.params[:2], function.params[2]
    ours = dict(zip(theirs, (found.data, found.kernel), strict=True))
    stages = function.body.block
    nests = [*_replaced(stages.body, ours), _output(found, made, tiling)]
    buffers = [*stages.alloc_buffers, made]
    root = SBlock([], [], [], "root", tirx.SeqStmt(nests), alloc_buffers=buffers)
    return SBlockRealize([], True, root)  # noqa: FBT003 - TVM's signature


def _output(found: Convolution, made: Any, tiling: Tiling) -> tirx.For:  # noqa: ANN401 - a buffer
    """Return the loops over the tiles that do what follows the sum on each of their elements."""
    dtype = str(found.data.shape[0].ty.dtype)
    loops = [tirx.Var(name, dtype) for name in ("tile", "row", "column", "channel")]
    axes = [tirx.Var(f"v_{loop.name}", dtype) for loop in loops]
    image, top, left = tiling.origin(axes[0])
    place = [image, top + axes[1], left + axes[2], axes[3]]
    body, reads, writes = _moved(found, made, axes, place)
    if overhangs := _inside(found, tiling, axes[0], place):
        body = tirx.IfThenElse(tirx.all(*overhangs), body, None)
    domains = [tvm.ir.Range(0, extent) for extent in made.shape]
    iters = [tirx.IterVar(d, a, SPATIAL) for d, a in zip(domains, axes, strict=True)]
    nest = SBlockRealize(loops, True, SBlock(iters, reads, writes, found.after.name_hint, body))  # noqa: FBT003 - TVM's signature
    for loop, domain in reversed(list(zip(loops, domains, strict=True))):
        nest = tirx.For(loop, domain.min, domain.extent, tirx.ForKind.SERIAL, nest)
    return nest


def _inside(found: Convolution, tiling: Tiling, tile: Any, place: Sequence[Any]) -> list[Any]:  # noqa: ANN401 - indices
    """Return the conditions under which an element of a tile is one of the output."""
    _, height, width, _ = found.result.shape
    conditions = []
    if tiling.padded > tiling.count:
        conditions.append(tile < tiling.count)
    for index, extent in zip(place[1:3], (height, width), strict=True):
        if int(extent) % tiling.size:
            conditions.append(index < extent)
    return conditions


def _moved(
    found: Convolution,
    made: Any,  # noqa: ANN401 - a buffer
    axes: Sequence[Any],
    place: Sequence[Any],
) -> Sequence[Any]:
    """Return body, reads and writes of what follows, on an element of a tile and at its place."""
    after, one = found.after, axes[0].ty
    indices = dict(zip((axis.var for axis in after.iter_vars), place, strict=True))
    element = [tvm.ir.Range.from_min_extent(axis, tirx.const(1, str(one.dtype))) for axis in axes]

    def load(node: Any) -> Any:  # noqa: ANN401 - expressions
        return tirx.BufferLoad(made, axes) if node.source.same_as(found.result) else node

    def region(node: Any) -> Any:  # noqa: ANN401 - regions
        return tirx.BufferRegion(made, element) if node.source.same_as(found.result) else node

    changes = (
        (tvm.ir.Var, lambda var: indices.get(var, var)),
        (tvm.ir.TensorLoad, load),
        (tvm.ir.TensorRegion, region),
    )
    return [
        tvm_ffi.structural_map(part, changes) for part in (after.body, after.reads, after.writes)
    ]


def _replaced(node: Any, places: Mapping[Any, Any]) -> Any:  # noqa: ANN401 - any node
    return tvm_ffi.structural_map(node, (tvm.ir.Var, lambda var: places.get(var, var)))
