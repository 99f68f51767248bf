"""The allow-list: which instructions a trace may hold, and with which values.

The list holds the instructions that our engine `default`, MetaSchedule's rules and postprocessors
for x86 and CUDA, and DLight's rules emit; all of these were run with TVM 0.27. The instructions of
the rules for ARM and for tensor cores were read in TVM's source.

Instructions that carry TIR, source text or a path are left out. So are primitives that TVM
documents as unsafe, and a `Split` without predicates, which can write outside of its buffers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from autopipe.traces.values import (
    Check,
    block,
    boolean,
    either,
    extent,
    factor,
    integer,
    intrinsic,
    loop,
    name,
    nothing,
    number,
    off,
    one_of,
    place,
    quoted,
    several,
    share,
    small,
    title,
)


@dataclass(frozen=True, slots=True)
class InstructionKind:
    """The parts of an instruction of one kind."""

    inputs: tuple[Check, ...] = ()
    attrs: tuple[Check, ...] = ()
    outputs: str = ""
    """`b` a block, `l` a loop, `v` a number; with `*` any number of them."""
    many: bool = False
    """Whether its last input may be repeated."""
    decision: Check | None = None
    """What was drawn, where something is; without it, TVM would draw again."""


SCOPE: Final = one_of(
    "global", "shared", "shared.dyn", "local", "warp", "wmma.matrix_a", "wmma.matrix_b",
    "wmma.accumulator", "m16n8k8.matrixA", "m16n8k8.matrixB", "m16n8k8.matrixC",
)  # fmt: skip
"""Where a buffer lies."""

THREAD: Final = one_of(
    *(f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx", "vthread") for axis in "xyz")
)

INDEX_MAP: Final = name(r"\{[\s\S]{1,65536}\}")
"""Text that looks like an index map; `index_map.read` says whether it is one."""

_stages: Final = several(integer(0, 255), least=1)
_step: Final = either(small, number)

ANNOTATIONS: Final[Mapping[str, Check]] = MappingProxyType(
    {
        "meta_schedule.auto_tensorize": quoted(f"(?:{intrinsic})?"),
        "meta_schedule.auto_tensorize_init": quoted(f"(?:{intrinsic})?"),
        "meta_schedule.cooperative_fetch": _step,
        "meta_schedule.layout_rewrite_preproc": boolean,
        "meta_schedule.parallel": integer(0, 1 << 20),
        "meta_schedule.random_compute_producer": boolean,
        "meta_schedule.thread_extent_high_inclusive": small,
        "meta_schedule.thread_extent_low_inclusive": small,
        "meta_schedule.tiling_structure": quoted("[SR]{1,32}"),
        "meta_schedule.unroll_explicit": _step,
        "meta_schedule.unroll_implicit": _step,
        "meta_schedule.vectorize": small,
        "pragma_auto_unroll_max_step": _step,
        "pragma_loop_partition_hint": boolean,
        "pragma_unroll_explicit": small,
        "pragma_vectorize": boolean,
        "software_pipeline_async_stages": _stages,
        "software_pipeline_order": _stages,
        "software_pipeline_stage": _stages,
        "double_buffer_scope": integer(0, 255),
        "tirx.manifest_shared_memory_local_stage": boolean,
        "local_stage": boolean,
        "vector_bytes": integer(1, 1024),
        "warp_execution": boolean,
    }
)
"""The keys of annotations, and the values of each."""

_taken: Final = one_of(*ANNOTATIONS, "schedule_rule")
_item: Final = either(block, loop)
_perhaps: Final = several(block)

KINDS: Final[Mapping[str, InstructionKind]] = MappingProxyType(
    {
        "GetSBlock": InstructionKind(attrs=(title, one_of("main")), outputs="b"),
        "GetLoops": InstructionKind((block,), outputs="l*"),
        "GetChildBlocks": InstructionKind((_item,), outputs="b*"),
        "GetProducers": InstructionKind((block,), outputs="b*"),
        "GetConsumers": InstructionKind((block,), outputs="b*"),
        "GetOutputBlocks": InstructionKind((block,), outputs="b*"),
        "SampleCategorical": InstructionKind(
            attrs=(several(small, least=1), several(share, least=1)), outputs="v", decision=small
        ),
        "SamplePerfectTile": InstructionKind(
            (loop,), (integer(1, 16), integer(-1, 1 << 20)), "v*",
            decision=several(extent, least=1),
        ),
        "SampleComputeLocation": InstructionKind((block,), outputs="l", decision=integer(-2, 1024)),
        "Split": InstructionKind((loop, factor), (boolean, off), "l*", many=True),
        "Fuse": InstructionKind((loop,), (boolean,), "l", many=True),
        "Reorder": InstructionKind((loop,), many=True),
        "AddUnitLoop": InstructionKind((_item,), outputs="l"),
        "Parallel": InstructionKind((loop,)),
        "Vectorize": InstructionKind((loop,)),
        "Unroll": InstructionKind((loop,)),
        "Bind": InstructionKind((loop,), (THREAD,)),
        "CacheRead": InstructionKind((block, _perhaps), (place, SCOPE), "b"),
        "CacheWrite": InstructionKind((block, _perhaps), (place, SCOPE), "b"),
        "ReadAt": InstructionKind((loop, block), (place, SCOPE), "b"),
        "WriteAt": InstructionKind((loop, block), (place, SCOPE), "b"),
        "ReIndex": InstructionKind((block,), (place, boolean), "b"),
        "ComputeAt": InstructionKind((block, loop), (boolean, place)),
        "ReverseComputeAt": InstructionKind((block, loop), (boolean, place)),
        "ComputeInline": InstructionKind((block,)),
        "ReverseComputeInline": InstructionKind((block,)),
        "DecomposeReduction": InstructionKind((block, loop), outputs="b"),
        "RFactor": InstructionKind((loop,), (place,), "b"),
        "PadEinsum": InstructionKind((block,), (several(extent, least=1),)),
        "Blockize": InstructionKind((_item,), (boolean,), "b"),
        "Tensorize": InstructionKind((_item,), (name(intrinsic), boolean)),
        "SetScope": InstructionKind((block,), (place, SCOPE)),
        "StorageAlign": InstructionKind((block,), (place, place, extent, integer(0, 1 << 31))),
        "TransformLayout": InstructionKind((block, INDEX_MAP), (place, boolean, nothing, boolean)),
        "TransformBlockLayout": InstructionKind((block,), (INDEX_MAP,)),
        "Annotate": InstructionKind((_item, lambda _: True), (one_of(*ANNOTATIONS),)),
        "Unannotate": InstructionKind((_item,), (_taken,)),
        "EnterPostproc": InstructionKind(),
    }
)  # fmt: skip
"""The kinds of instructions. What `Annotate` may take hangs on its key, in `ANNOTATIONS`."""
