"""The allow-list of the instructions of a trace, and of their values.

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
    allow_either,
    allow_integer,
    allow_list,
    allow_names,
    allow_quoted,
    allow_text,
    block,
    extent,
    factor,
    intrinsic,
    is_boolean,
    is_false,
    is_null,
    is_probability,
    loop,
    number,
    place,
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
    """Check of the decision of a sampling instruction, without which TVM would sample again."""


SCOPE: Final = allow_names(
    "global", "shared", "shared.dyn", "local", "warp", "wmma.matrix_a", "wmma.matrix_b",
    "wmma.accumulator", "m16n8k8.matrixA", "m16n8k8.matrixB", "m16n8k8.matrixC",
)  # fmt: skip
"""Storage scopes of buffers."""

THREAD: Final = allow_names(
    *(f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx", "vthread") for axis in "xyz")
)

INDEX_MAP: Final = allow_text(r"\{[\s\S]{1,65536}\}")
"""Text that may be an index map, which `index_map.read_index_map` checks."""

_stages: Final = allow_list(allow_integer(0, 255), least=1)
_step: Final = allow_either(small, number)

ANNOTATIONS: Final[Mapping[str, Check]] = MappingProxyType(
    {
        "meta_schedule.auto_tensorize": allow_quoted(f"(?:{intrinsic})?"),
        "meta_schedule.auto_tensorize_init": allow_quoted(f"(?:{intrinsic})?"),
        "meta_schedule.cooperative_fetch": _step,
        "meta_schedule.layout_rewrite_preproc": is_boolean,
        "meta_schedule.parallel": allow_integer(0, 1 << 20),
        "meta_schedule.random_compute_producer": is_boolean,
        "meta_schedule.thread_extent_high_inclusive": small,
        "meta_schedule.thread_extent_low_inclusive": small,
        "meta_schedule.tiling_structure": allow_quoted("[SR]{1,32}"),
        "meta_schedule.unroll_explicit": _step,
        "meta_schedule.unroll_implicit": _step,
        "meta_schedule.vectorize": small,
        "pragma_auto_unroll_max_step": _step,
        "pragma_loop_partition_hint": is_boolean,
        "pragma_unroll_explicit": small,
        "pragma_vectorize": is_boolean,
        "software_pipeline_async_stages": _stages,
        "software_pipeline_order": _stages,
        "software_pipeline_stage": _stages,
        "double_buffer_scope": allow_integer(0, 255),
        "tirx.manifest_shared_memory_local_stage": is_boolean,
        "local_stage": is_boolean,
        "vector_bytes": allow_integer(1, 1024),
        "warp_execution": is_boolean,
    }
)
"""The keys of annotations, and the values of each."""

_taken: Final = allow_names(*ANNOTATIONS, "schedule_rule")
_item: Final = allow_either(block, loop)
_perhaps: Final = allow_list(block)

KINDS: Final[Mapping[str, InstructionKind]] = MappingProxyType(
    {
        "GetSBlock": InstructionKind(attrs=(title, allow_names("main")), outputs="b"),
        "GetLoops": InstructionKind((block,), outputs="l*"),
        "GetChildBlocks": InstructionKind((_item,), outputs="b*"),
        "GetProducers": InstructionKind((block,), outputs="b*"),
        "GetConsumers": InstructionKind((block,), outputs="b*"),
        "GetOutputBlocks": InstructionKind((block,), outputs="b*"),
        "SampleCategorical": InstructionKind(
            attrs=(allow_list(small, least=1), allow_list(is_probability, least=1)), outputs="v",
            decision=small
        ),
        "SamplePerfectTile": InstructionKind(
            (loop,), (allow_integer(1, 16), allow_integer(-1, 1 << 20)), "v*",
            decision=allow_list(extent, least=1),
        ),
        "SampleComputeLocation": InstructionKind(
            (block,), outputs="l", decision=allow_integer(-2, 1024)
        ),
        "Split": InstructionKind((loop, factor), (is_boolean, is_false), "l*", many=True),
        "Fuse": InstructionKind((loop,), (is_boolean,), "l", many=True),
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
        "ReIndex": InstructionKind((block,), (place, is_boolean), "b"),
        "ComputeAt": InstructionKind((block, loop), (is_boolean, place)),
        "ReverseComputeAt": InstructionKind((block, loop), (is_boolean, place)),
        "ComputeInline": InstructionKind((block,)),
        "ReverseComputeInline": InstructionKind((block,)),
        "DecomposeReduction": InstructionKind((block, loop), outputs="b"),
        "RFactor": InstructionKind((loop,), (place,), "b"),
        "PadEinsum": InstructionKind((block,), (allow_list(extent, least=1),)),
        "Blockize": InstructionKind((_item,), (is_boolean,), "b"),
        "Tensorize": InstructionKind((_item,), (allow_text(intrinsic), is_boolean)),
        "SetScope": InstructionKind((block,), (place, SCOPE)),
        "StorageAlign": InstructionKind(
            (block,), (place, place, extent, allow_integer(0, 1 << 31))
        ),
        "TransformLayout": InstructionKind(
            (block, INDEX_MAP), (place, is_boolean, is_null, is_boolean)
        ),
        "TransformBlockLayout": InstructionKind((block,), (INDEX_MAP,)),
        "Annotate": InstructionKind((_item, lambda _: True), (allow_names(*ANNOTATIONS),)),
        "Unannotate": InstructionKind((_item,), (_taken,)),
        "EnterPostproc": InstructionKind(),
    }
)  # fmt: skip
"""The kinds of instructions. The value of `Annotate` depends on its key, in `ANNOTATIONS`."""
