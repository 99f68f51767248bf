"""Template for what is left around the call of a library: copies before it, arithmetic after it.

Which library, in which version, is one of the knobs: another version makes no record of this one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tvm.s_tir import Schedule

from autopipe.compiler.library import linking
from autopipe.schedules.analysis.blocks import bits, is_spatial
from autopipe.schedules.hardware import Hardware
from autopipe.schedules.primitives import spread_vectors

NAME: Final = "library_call"
VERSION: Final = 1

VECTORS: Final = (1, 2, 4)
"""Hardware vectors in a vectorized loop."""


@dataclass(frozen=True, slots=True)
class Found:
    """A function that calls a library."""

    library: str
    """Its name and version."""
    blocks: tuple[str, ...]
    """The other blocks, in order."""
    bits: int
    """Width of the widest element that these write; 0 without any."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """The knobs."""

    library: str
    """What is called: name and version."""
    width: int
    """Elements in a vectorized loop at most; 0 where there is none."""


def match(sch: Schedule) -> Found | None:
    """Return what is around the call, or None if there is none, or something else is summed."""
    called = (sch.mod["main"].attrs or {}).get(linking.ATTRIBUTE)
    if called is None:
        return None
    blocks = [sch.get(block) for block in sch.get_child_blocks(sch.get_sblock("root"))]
    if not all(map(is_spatial, blocks)):
        return None
    others = [block for block in blocks if block.iter_vars]
    return Found(
        library=str(called),
        blocks=tuple(block.name_hint for block in others),
        bits=max(map(bits, others), default=0),
    )


def settings(found: Found, hardware: Hardware) -> Iterator[Knobs]:
    """Yield every width of the vectorized loops."""
    lanes = hardware.lanes(found.bits) if found.bits else 0
    for width in dict.fromkeys(count * lanes for count in VECTORS):
        yield Knobs(found.library, width)


def fill(found: Found, hardware: Hardware) -> Knobs:
    """Return the knobs for a processor, without measuring."""
    every = list(settings(found, hardware))
    return every[len(every) // 2]


def apply(sch: Schedule, found: Found, knobs: Knobs) -> None:
    """Schedule the function. Raises ScheduleError where TVM refuses."""
    call = next(
        block
        for block in sch.get_child_blocks(sch.get_sblock("root"))
        if not sch.get(block).iter_vars
    )
    after = _after(sch, sch.get(call).name_hint)
    for name in found.blocks:
        if name not in after:
            spread_vectors(sch, sch.get_sblock(name), knobs.width)
    for name in after[:-1]:
        sch.compute_inline(sch.get_sblock(name))
    for name in after[-1:]:
        spread_vectors(sch, sch.get_sblock(name), knobs.width)


def _after(sch: Schedule, call: str) -> list[str]:
    """Return the blocks after the call, in order."""
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    names = [sch.get(block).name_hint for block in blocks]
    return names[names.index(call) + 1 :]
