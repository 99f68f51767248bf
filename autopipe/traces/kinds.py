"""The allow-list: which instructions a trace may hold, and with what.

It is what is emitted, not what can be imagined: by our engine `default`, by MetaSchedule's rules
and postprocessors for x86 and CUDA, and by DLight's rules, which were run with TVM 0.27; what rules
for ARM and tensor cores emit was read in its source.
Whatever carries TIR, source text or a path is left out; so are primitives that say of themselves
that they are unsafe, and a `Split` without predicates, which leaves its buffers.
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
class Kind:
    """What an instruction of one kind consists of."""

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

KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "GetSBlock": Kind(attrs=(title, one_of("main")), outputs="b"),
        "GetLoops": Kind((block,), outputs="l*"),
        "GetChildBlocks": Kind((_item,), outputs="b*"),
        "GetProducers": Kind((block,), outputs="b*"),
        "GetConsumers": Kind((block,), outputs="b*"),
        "GetOutputBlocks": Kind((block,), outputs="b*"),
        "SampleCategorical": Kind(
            attrs=(several(small, least=1), several(share, least=1)), outputs="v", decision=small
        ),
        "SamplePerfectTile": Kind(
            (loop,), (integer(1, 16), integer(-1, 1 << 20)), "v*",
            decision=several(extent, least=1),
        ),
        "SampleComputeLocation": Kind((block,), outputs="l", decision=integer(-2, 1024)),
        "Split": Kind((loop, factor), (boolean, off), "l*", many=True),
        "Fuse": Kind((loop,), (boolean,), "l", many=True),
        "Reorder": Kind((loop,), many=True),
        "AddUnitLoop": Kind((_item,), outputs="l"),
        "Parallel": Kind((loop,)),
        "Vectorize": Kind((loop,)),
        "Unroll": Kind((loop,)),
        "Bind": Kind((loop,), (THREAD,)),
        "CacheRead": Kind((block, _perhaps), (place, SCOPE), "b"),
        "CacheWrite": Kind((block, _perhaps), (place, SCOPE), "b"),
        "ReadAt": Kind((loop, block), (place, SCOPE), "b"),
        "WriteAt": Kind((loop, block), (place, SCOPE), "b"),
        "ReIndex": Kind((block,), (place, boolean), "b"),
        "ComputeAt": Kind((block, loop), (boolean, place)),
        "ReverseComputeAt": Kind((block, loop), (boolean, place)),
        "ComputeInline": Kind((block,)),
        "ReverseComputeInline": Kind((block,)),
        "DecomposeReduction": Kind((block, loop), outputs="b"),
        "RFactor": Kind((loop,), (place,), "b"),
        "PadEinsum": Kind((block,), (several(extent, least=1),)),
        "Blockize": Kind((_item,), (boolean,), "b"),
        "Tensorize": Kind((_item,), (name(intrinsic), boolean)),
        "SetScope": Kind((block,), (place, SCOPE)),
        "StorageAlign": Kind((block,), (place, place, extent, integer(0, 1 << 31))),
        "TransformLayout": Kind((block, INDEX_MAP), (place, boolean, nothing, boolean)),
        "TransformBlockLayout": Kind((block,), (INDEX_MAP,)),
        "Annotate": Kind((_item, lambda _: True), (one_of(*ANNOTATIONS),)),
        "Unannotate": Kind((_item,), (_taken,)),
        "EnterPostproc": Kind(),
    }
)  # fmt: skip
"""The kinds of instructions. What `Annotate` may take hangs on its key, in `ANNOTATIONS`."""
