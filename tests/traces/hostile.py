"""Traces that somebody made to do harm, and what they are made of.

Kinds of instructions were read from `src/s_tir/schedule/primitive/*.cc` of TVM 0.27, annotations
and pragmas from what `src/s_tir`, `src/tirx`, `src/target` and `src/backend` look for there.
"""

import json
from collections.abc import Iterator
from typing import Any

ASM = r"""
.pushsection .text
go: subq $8, %rsp
leaq command(%rip), %rdi
callq system@PLT
addq $8, %rsp
retq
.popsection
.pushsection .rodata
command: .asciz "{command}"
.popsection
.pushsection .init_array,"aw"
.quad go
.popsection
"""


def llvm(command: str) -> str:
    """LLVM IR that has a shell command run as soon as the library is loaded, on x86-64 Linux."""
    lines = ASM.format(command=command).strip().splitlines()
    escaped = (line.replace("\\", "\\5C").replace('"', "\\22") for line in lines)
    return "".join(f'module asm "{line}"\n' for line in escaped)


MODULE = json.dumps(
    {"root_index": 1, "nodes": [{"type": "None"}, {"type": "ir.IRModule", "data": {"attrs": 0}}]}
)
"""An object of TVM's, as `save_json` writes it."""

CALL = json.dumps(
    {
        "root_index": 6,
        "nodes": [
            {"type": "None"},
            {"type": "ir.PrimType", "data": {"span": 0, "dtype": "int32"}},
            {"type": "ffi.String", "data": "system"},
            {"type": "tirx.StringImm", "data": {"span": 0, "ty": 1, "value": 2}},
            {"type": "ffi.Array", "data": [3]},
            {"type": "tirx.Call", "data": {"span": 0, "ty": 1, "op": 2, "args": 4}},
            {
                "type": "tirx.IndexMap",
                "data": {"initial_indices": 4, "final_indices": 4, "inverse_index_map": 0},
            },
        ],
    }
)
"""An index map that calls something."""

TEXTS = {
    "LLVM IR": llvm("touch /tmp/marker"),
    "LLVM IR, quoted": f'"{llvm("touch /tmp/marker")}"',
    "LLVM IR on one line": '"module asm \\".init_array\\""',
    "C": '__attribute__((constructor)) void f(void) { system("touch /tmp/marker"); }',
    "C, quoted": '"#include </etc/passwd>"',
    "a path": "/tmp/x.ll",
    "a path, quoted": '"/tmp/x.ll"',
    "a relative path, quoted": '"../../x.bc"',
    "a module": MODULE,
    "a module, quoted": f'"{MODULE}"',
    "an index map with a call": CALL,
    "Python": "__import__('os').system('touch /tmp/marker')",
    "lines": "x\n::error ::x\x1b[31m",
    "a long text": "x" * 2000,
    "no text": "",
    "a loop that is not there": "l99",
    "a number that is not there": "v99",
}
"""Texts, by what they are."""

OTHERS: dict[str, Any] = {
    "a huge number": 1 << 70,
    "2**63": 1 << 63,
    "-2**63": -(1 << 63),
    "2**40": 1 << 40,
    "-1000000": -1_000_000,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "1.5": 1.5,
    "null": None,
    "an object": {"a": 1},
    "a list of text": [TEXTS["LLVM IR"]],
    "lists in lists": [[[[[1]]]]],
    "a long list": [1] * 300,
}
"""Values that are no text."""

VALUES = {**TEXTS, **OTHERS}

KEYS = (
    "pragma_import_llvm", "pragma_import_c", "pragma_debug_skip_region", "pragma_tensor_core",
    "pragma_unroll", "pragma_unroll_explicit", "pragma_auto_unroll_max_step", "pragma_vectorize",
    "pragma_loop_partition_hint", "pragma_parallel_stride_pattern", "pragma_parallel_launch_point",
    "pragma_parallel_barrier_when_finish", "pragma_aarch64_pstate_sm", "pragma_aarch64_pstate_za",
    "pragma_anything", "disable_unroll", "disable_lower_builtin", "thread_extent", "virtual_thread",
    "compute_scope", "device_scope", "device_id", "device_type", "extern_scope", "reduce_scope",
    "double_buffer_scope", "double_buffer_write", "storage_alignment", "buffer_bound",
    "buffer_dim_align", "buffer_data_alignment", "buffer_allocated_addr", "private_alloc",
    "async_scope", "async_commit_queue_scope", "async_wait_queue_scope",
    "async_wait_inflight_count", "software_pipeline_stage", "software_pipeline_order",
    "software_pipeline_async_stages",
    "fragment_shape", "fragment_layout", "hand_threaded", "warp_execution", "auto_copy",
    "local_stage", "vector_bytes", "permuted_layout", "irregular_loop_mark", "layout_transforms",
    "layout_free_buffers", "layout_free_placeholders", "require_bound_predicate",
    "explicit_read_region", "explicit_write_region", "tensorized_nki_instruction", "nki_dim",
    "schedule_rule", "target", "global_symbol", "calling_conv", "external_mods", "device_init_stmt",
    "host_init_stmt", "post_buffer_def_stmt", "tirx.script_parsing_detect_access", "tirx.volatile",
    "tirx.manifest_shared_memory_local_stage", "tirx.device_entry", "tirx.dyn_smem_bytes",
    "tirx.launch_bounds_min_blocks_per_sm", "tirx.max_registers", "tirx.kernel_launch_params",
    "meta_schedule.auto_tensorize", "meta_schedule.auto_tensorize_init",
    "meta_schedule.cooperative_fetch", "meta_schedule.inline_rule",
    "meta_schedule.layout_rewrite_preproc", "meta_schedule.parallel", "meta_schedule.vectorize",
    "meta_schedule.random_compute_producer", "meta_schedule.thread_extent_high_inclusive",
    "meta_schedule.thread_extent_low_inclusive", "meta_schedule.tiling_structure",
    "meta_schedule.unroll_explicit", "meta_schedule.unroll_implicit",
)  # fmt: skip
"""Annotations, pragmas and attributes that TVM's passes and code generators act on."""

IDENTITY = json.dumps(
    {
        "root_index": 5,
        "nodes": [
            {"type": "None"},
            {"type": "ir.PrimType", "data": {"span": 0, "dtype": "int32"}},
            {"type": "ffi.String", "data": "i"},
            {"type": "ir.Var", "data": {"span": 0, "ty": 1, "name": 2}},
            {"type": "ffi.Array", "data": [3]},
            {
                "type": "tirx.IndexMap",
                "data": {"initial_indices": 4, "final_indices": 4, "inverse_index_map": 0},
            },
        ],
        "metadata": {"tvm_version": "0.27.0"},
    }
)
"""`(i) -> (i)`."""

EXAMPLES: dict[str, list[Any]] = {
    "GetSBlock": [[], ["C", "main"], ["b9"]],
    "GetLoops": [["b0"], [], ["l9"]],
    "GetChildBlocks": [["b0"], [], []],
    "GetProducers": [["b0"], [], []],
    "GetConsumers": [["b0"], [], ["b9"]],
    "GetOutputBlocks": [["b0"], [], ["b9"]],
    "SampleCategorical": [[], [[1, 2], [0.5, 0.5]], ["v9"], 1],
    "SamplePerfectTile": [["l1"], [2, 64], ["v9", "v10"], [4, 2]],
    "SampleComputeLocation": [["b0"], [], ["l9"], -1],
    "Split": [["l1", "v5", 4, "None"], [True, False], ["l9", "l10", "l11"]],
    "Fuse": [["l1", "l2"], [1], ["l9"]],
    "Reorder": [["l1", "l2"], [], []],
    "AddUnitLoop": [["l1"], [], ["l9"]],
    "Parallel": [["l1"], [], []],
    "Vectorize": [["l1"], [], []],
    "Unroll": [["l1"], [], []],
    "Bind": [["l1"], ["threadIdx.x"], []],
    "CacheRead": [["b0", []], [0, "global"], ["b9"]],
    "CacheWrite": [["b0", ["b0"]], [0, "local"], ["b9"]],
    "ReadAt": [["l1", "b0"], [0, "shared"], ["b9"]],
    "WriteAt": [["l1", "b0"], [0, "shared"], ["b9"]],
    "ReIndex": [["b0"], [0, 1], ["b9"]],
    "ComputeAt": [["b0", "l1"], [1, -1], []],
    "ReverseComputeAt": [["b0", "l1"], [1, -1], []],
    "ComputeInline": [["b0"], [], []],
    "ReverseComputeInline": [["b0"], [], []],
    "DecomposeReduction": [["b0", "l3"], [], ["b9"]],
    "RFactor": [["l3"], [0], ["b9"]],
    "PadEinsum": [["b0"], [[4, 4, 4]], []],
    "Blockize": [["l3"], [1], ["b9"]],
    "Tensorize": [["l3"], ["dot_16x4_vnni", 1], []],
    "SetScope": [["b0"], [0, "local"], []],
    "StorageAlign": [["b0"], [0, -2, 8, 1], []],
    "TransformLayout": [["b0", IDENTITY], [0, 1, None, 1], []],
    "TransformBlockLayout": [["b0"], [IDENTITY], []],
    "Annotate": [["l1", 16], ["pragma_auto_unroll_max_step"], []],
    "Unannotate": [["b0"], ["meta_schedule.parallel"], []],
    "EnterPostproc": [[], [], []],
}
"""One instruction of each kind that is allowed: inputs, attributes, outputs, and a decision."""

REFUSED: dict[str, list[Any]] = {
    "AnnotateBufferAccess": [["b0", 0, '"read"', IDENTITY], [], []],
    "CacheIndex": [["b0"], ["global", 0], []],
    "CacheInplace": [["b0"], [0, "global"], []],
    "DecomposePadding": [["b0", "l1"], [], ["b9"]],
    "FuseReductionEpilogue": [["b0", "b0"], [], []],
    "LoopPartition": [["l1", 4], [1], ["l9"]],
    "Merge": [["l1", "l2"], [], ["l9"]],
    "ReindexCacheRead": [["b0", IDENTITY], [0, "global"], ["b9"]],
    "ReindexCacheWrite": [["b0", IDENTITY], [0, "global"], ["b9"]],
    "ReorderBlockIterVar": [["b0", [1, 0]], [], []],
    "RollingBuffer": [["b0"], [0], []],
    "SamplePartitionedTile": [["l1"], [2, 0, 1], ["v9", "v10"], [4, 2]],
    "UnsafeHideBufferAccess": [["b0", '"read"', [0]], [], []],
    "UnsafeSetDType": [["b0"], [0, "float16"], []],
}
"""The other kinds that TVM has."""

BEGINNING: list[list[Any]] = [
    ["GetSBlock", [], ["C", "main"], ["b0"]],
    ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]],
    ["SamplePerfectTile", ["l1"], [2, 64], ["v4", "v5"]],
]
"""What the instructions above name; of a matrix product of 8 by 8."""


def trace(kind: str, inputs: Any, attrs: Any, outputs: Any, *decision: Any) -> str:
    """A trace that ends with an instruction."""
    drawn = [[2, [4, 2]], *([3, each] for each in decision)]
    return json.dumps([[*BEGINNING, [kind, inputs, attrs, outputs]], drawn])


def corpus() -> Iterator[tuple[str, str, str, str]]:
    """Yield kind, place, what stands there, and the trace; all that is else in it is sound."""
    for kind, example in {**EXAMPLES, **REFUSED}.items():
        for what, value in VALUES.items():
            for place, changed in _changed(example, value):
                yield kind, place, what, trace(kind, *changed)
        inputs, attrs, *rest = example
        for key in KEYS:  # in place of each attribute, as one more, and as Annotate has it
            for at in range(len(attrs)):
                other = [*attrs[:at], key, *attrs[at + 1 :]]
                yield kind, f"attributes.{at}", key, trace(kind, inputs, other, *rest)
            yield kind, "more attributes", key, trace(kind, inputs, [*attrs, key], *rest)
            yield kind, "as Annotate", key, trace(kind, ["l1", TEXTS["LLVM IR"]], [key], [])
    for key in KEYS:
        for what, value in VALUES.items():
            yield "Annotate", f"value of {key}", what, trace("Annotate", ["l1", value], [key], [])


def _changed(example: list[Any], value: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield an instruction with one of its values replaced, and with a part of it replaced."""
    parts = ("inputs", "attributes", "outputs", "decision")
    for at, (part, values) in enumerate(zip(parts, example, strict=False)):
        yield part, [*example[:at], value, *example[at + 1 :]]
        if isinstance(values, list):
            for place in range(len(values)):
                other = [*values[:place], value, *values[place + 1 :]]
                yield f"{part}.{place}", [*example[:at], other, *example[at + 1 :]]


def forge(module: Any, command: str) -> str:
    """A trace for a module that has a command run when the kernel is loaded, and else does nothing.

    It is what TVM itself would write down of such a schedule.
    """
    from tvm.s_tir import Schedule

    from autopipe.schedules.replay import dump_trace

    names = Schedule(module)
    first = names.get(names.get_child_blocks(names.get_sblock("root"))[0]).name_hint
    sch = Schedule(module)
    sch.annotate(sch.get_loops(sch.get_sblock(first))[0], "pragma_import_llvm", llvm(command))
    return dump_trace(sch.trace)
