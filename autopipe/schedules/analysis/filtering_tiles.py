"""The dynamic number of tiles of a Winograd convolution, and its rounding up to whole blocks."""

from typing import Any, Final

from tvm.ir import Expr, IRModule
from tvm.s_tir import Schedule, ScheduleError
from tvm.sym import Analyzer
from tvm.tirx import FloorDiv, Mul
from tvm_ffi import StructuralMutator, structural_equal, structural_mutate

from autopipe.schedules.analysis.blocks import parts_of

PRODUCT_BLOCK: Final = "winograd_product"
"""The block that sums products, [row, column, tile, channel out]."""


def _find_padded_tiles(sch: Schedule) -> Mul:
    """Find the dynamic number of tiles, rounded up to whole blocks.

    Raises ScheduleError if it is not written as `(count + 9) // 10 * 10`.
    """
    tile_extent = sch.get(sch.get_sblock(PRODUCT_BLOCK)).iter_vars[2].dom.extent
    if not (isinstance(tile_extent, Mul) and isinstance(tile_extent.a, FloorDiv)):
        raise ScheduleError("the number of tiles is not rounded up")
    return tile_extent


def find_tile_count(sch: Schedule) -> Expr:
    """Find the dynamic number of tiles, before rounding up."""
    padded_tiles = _find_padded_tiles(sch)
    tiles: Expr = Analyzer().simplify(padded_tiles.a.a - (padded_tiles.b - 1))
    return tiles


def round_up_tiles(sch: Schedule, block: int) -> IRModule:
    """Round the dynamic number of tiles of a function up to blocks of another size."""
    padded_tiles = _find_padded_tiles(sch)
    rounded_tiles = parts_of(find_tile_count(sch), block) * block

    def changed(node: Expr, mutator: StructuralMutator) -> Any:  # noqa: ANN401 - any node
        return (
            rounded_tiles if structural_equal(node, padded_tiles) else mutator.default_mutate(node)
        )

    return IRModule({"main": structural_mutate(sch.mod["main"], [(Mul, changed)])})
