"""Template for the blocks around the call of a library: copies before it, arithmetic after it.

The library and its version are a knob, so a record of one version does not fit another one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tvm.s_tir import Schedule

from autopipe.compiler.library import linking
from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis.blocks import find_output_bits, is_spatial
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import inline_blocks, spread_vectors
from autopipe.schedules.templates.template import Template

VECTORS: Final = (2, 1, 4)
"""Registers that a vectorized loop fills, in the order they are proposed."""


@dataclass(frozen=True, slots=True)
class LibraryCaller:
    """A function that calls a library."""

    library: str
    """Name and version of the library."""
    blocks: tuple[str, ...]
    """The blocks around the call, in order."""
    bits: int
    """Size in bits of the largest element that these blocks write; 0 if there are none."""


@dataclass(frozen=True, slots=True)
class CallKnobs:
    """The knobs."""

    library: str
    """Name and version of the library."""
    width: int
    """Maximum elements in a vectorized loop; 0 if there is no loop."""


class LibraryCallTemplate(Template[LibraryCaller, CallKnobs]):
    """The copies before and the arithmetic after the call of a library."""

    name = "library_call"
    version = schedule_version("library_call")

    def match(self, sch: Schedule) -> LibraryCaller | None:
        """Match the blocks around the call; None without a call, or if a block reduces."""
        library_name = (sch.mod["main"].attrs or {}).get(linking.ATTRIBUTE)
        if library_name is None:
            return None
        blocks = [sch.get(block) for block in sch.get_child_blocks(sch.get_sblock("root"))]
        if not all(map(is_spatial, blocks)):
            return None
        loop_blocks = [block for block in blocks if block.iter_vars]
        return LibraryCaller(
            library=str(library_name),
            blocks=tuple(block.name_hint for block in loop_blocks),
            bits=max(map(find_output_bits, loop_blocks), default=0),
        )

    def settings(self, around: LibraryCaller, hardware: HardwareParams) -> Iterator[CallKnobs]:
        """Yield every width of the vectorized loops."""
        lanes = hardware.lanes(around.bits) if around.bits else 0
        for width in dict.fromkeys(count * lanes for count in VECTORS):
            yield CallKnobs(around.library, width)

    def apply(self, sch: Schedule, around: LibraryCaller, knobs: CallKnobs) -> None:
        """Schedule the function. Raises ScheduleError where TVM refuses."""
        call = next(
            block
            for block in sch.get_child_blocks(sch.get_sblock("root"))
            if not sch.get(block).iter_vars
        )
        after = _list_blocks_after(sch, sch.get(call).name_hint)
        for name in around.blocks:
            if name not in after:
                spread_vectors(sch, sch.get_sblock(name), knobs.width)
        inline_blocks(sch, after[:-1])
        for name in after[-1:]:
            spread_vectors(sch, sch.get_sblock(name), knobs.width)


LIBRARY_CALL: Final = LibraryCallTemplate()


def _list_blocks_after(sch: Schedule, call: str) -> list[str]:
    """List the names of the blocks after the call, in order."""
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    names = [sch.get(block).name_hint for block in blocks]
    return names[names.index(call) + 1 :]
