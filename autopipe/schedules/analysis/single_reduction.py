"""The blocks of a function with one reduction, which several templates serve in different ways."""

from dataclasses import dataclass

from tvm.s_tir import SBlock, Schedule

from autopipe.schedules.analysis.blocks import is_spatial
from autopipe.schedules.analysis.simple_indices import to_simple_indices


@dataclass(frozen=True)  # without slots, as some of its kinds cache derived numbers
class SingleReduction:
    """A function with one reduction, as knobs depend on it; schedules find its blocks by name."""

    name: str
    """Name of the block that reduces."""
    inlined: tuple[str, ...]
    """Blocks that are computed where the reduction reads them, such as copies of an operand."""
    before: tuple[str, ...]
    """Other blocks that prepare operands, such as padding, in order."""
    after: tuple[str, ...]
    """Elementwise blocks on its result, in order."""
    extents: tuple[int, ...]
    """Extents of its spatial axes."""

    def find_last(self, sch: Schedule) -> SBlock | None:
        """Find the block that computes the output from the result, with simple indices."""
        names = self.after[-1:]
        return to_simple_indices(sch.get(sch.get_sblock(names[0]))) if names else None


def split_at_reduction(sch: Schedule) -> tuple[list[SBlock], SBlock, list[SBlock]] | None:
    """Split the outermost blocks at the only one that reduces; None if there is none, or several.

    Returns the blocks before it, the block itself, and those after it.
    """
    blocks = [sch.get(block) for block in sch.get_child_blocks(sch.get_sblock("root"))]
    positions = [i for i, block in enumerate(blocks) if not is_spatial(block)]
    if len(positions) != 1:
        return None
    (at,) = positions
    return blocks[:at], blocks[at], blocks[at + 1 :]
