"""Allow lists of names in IR, taken from the source of TVM 0.27.

A name that is not here is refused, even if it is harmless. Additions of a later TVM need a review
first.
"""

from typing import Final


def split_words(text: str, start: str = "") -> frozenset[str]:
    """Split a text into words, and put the same prefix before each."""
    return frozenset(f"{start}{word}" for word in text.split())


LIBM: Final = split_words(
    """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1
    fabs floor fma fmax fmin fmod hypot ldexp lgamma llrint llround log log10 log1p log2 lrint
    lround nearbyint nextafter pow remainder rint round roundeven sin sincos sinh sqrt tan tanh
    tgamma trunc
    """
)
"""Functions of libm, in double precision; with an `f` at the end in single."""

EXTERNS: Final = LIBM | {f"{name}f" for name in LIBM}
"""C functions that may be called by name."""

PACKED: Final = split_words("argsort argsort_nms sort topk", "tvm.contrib.sort.") | split_words(
    "sort stable_sort_by_key sum_scan", "tvm.contrib.thrust."
)
"""Packed functions of TVM's runtime that may be called: sorts and scans."""

RELAX_EXTERNS: Final = frozenset({"vm.builtin.reshape", "vm.builtin.tensor_to_shape"})
"""The same in the graph."""

INTRINSICS: Final = split_words(
    """
    aarch64.neon.sdot aarch64.neon.udot aarch64.neon.usdot aarch64.neon.smull aarch64.neon.umull
    aarch64.neon.smull.v8i16 aarch64.neon.saddlp.v4i32.v8i16 aarch64.neon.saddlp
    aarch64.neon.addp.v4i32 aarch64.neon.addp
    x86.avx2.pmadd.wd x86.avx2.pmadd.ub.sw x86.avx512.pmaddw.d.512 x86.avx512.pmaddubs.w.512
    x86.avx512.vpdpbusd.128 x86.avx512.vpdpbusd.256 x86.avx512.vpdpbusd.512
    x86.avx512bf16.dpbf16ps.128 x86.avx512bf16.dpbf16ps.256 x86.avx512bf16.dpbf16ps.512
    x86.sse2.pmadd.wd x86.ssse3.pmadd.ub.sw.128
    x86.ldtilecfg x86.tilezero x86.tileloadd64 x86.tilestored64 x86.tilerelease
    x86.tdpbusd x86.tdpbssd x86.tdpbuud x86.tdpbsud x86.tdpbf16ps
    ceil copysign cos ctlz ctpop cttz exp exp10 exp2 fabs floor fma fmuladd log log10 log2 maximum
    maxnum minimum minnum nearbyint pow prefetch rint round roundeven sin sqrt trunc
    """,
    "llvm.",
)
"""LLVM intrinsics: dot products of int8 and bfloat16, and arithmetic."""

OPS: Final = split_words(
    """
    acos acosh asin asinh atan atan2 atanh copysign cos cosh ctpop dp4a erf exp exp10 exp2 fabs
    floor fma fmod hypot isfinite isinf isnan ldexp log log10 log1p nearbyint nextafter popcount
    pow q_multiply_shift q_multiply_shift_per_axis reinterpret round rsqrt sigmoid sin sinh sqrt
    tan tanh trunc address_of assume atomic_add bitwise_and bitwise_not bitwise_or bitwise_xor
    break_loop buffer_data buffer_offset continue_loop ignore_loop_partition isnullptr
    large_uint_imm ptr_byte_offset ret shift_left shift_right tvm_access_ptr
    tvm_stack_make_array tvm_stack_make_shape tvm_thread_allreduce tvm_thread_invariant
    tvm_tuple tvm_warp_activemask tvm_warp_shuffle tvm_warp_shuffle_down tvm_warp_shuffle_up
    type_annotation undef vectorcombine vectorhigh vectorlow tvm_bmma_sync tvm_fill_fragment
    tvm_load_matrix_sync tvm_mma_sync tvm_store_matrix_sync
    """,
    "tirx.",
) | split_words("ceil clz if_then_else likely log2 vscale", "prim.")
"""Ops of TIR that become instructions, or calls of `LIBM`, for any arguments.

Ops that depend on an argument, such as `call_extern`, are not among them.
"""

RELAX_OPS: Final = split_words(
    """
    argsort call_tir call_tir_inplace call_tir_with_grad cumprod cumsum ewise_fma hint_on_device
    multinomial_from_uniform nonzero null_value shape_of sort tensor_to_shape to_vdevice topk unique
    wrap_param builtin.alloc_tensor builtin.stop_lift_params memory.alloc_storage
    memory.alloc_tensor memory.ensure_zero_offset memory.kill_storage memory.kill_tensor memory.view
    call_pure_packed
    """,
    "relax.",
)
"""Relax ops besides those that TVM legalizes to PrimFuncs."""

RELAX_FAMILIES: Final = frozenset({"", "image", "nn", "vision", "grad"})
"""Namespaces of ops that TVM legalizes to PrimFuncs; `ccl` and `dist` call other code."""

PRAGMAS: Final = split_words(
    """
    auto_unroll_max_step unroll_explicit loop_partition_hint unroll vectorize
    parallel_launch_point parallel_barrier_when_finish
    """,
    "pragma_",
)

_NUMBERS: Final = PRAGMAS | split_words(
    """
    async_commit_queue_scope async_scope async_wait_inflight_count async_wait_queue_scope
    disable_unroll double_buffer_scope double_buffer_write reduce_scope storage_alignment
    """
)

ATTRIBUTE_WORDS: Final = {"pragma_scope": frozenset({"seq"})}
"""Attribute statements with a string value: TVM marks scatter and NMS so, without an effect."""

ATTRIBUTES: Final = (
    _NUMBERS
    | ATTRIBUTE_WORDS.keys()
    | {"extern_scope", "thread_extent", "virtual_thread", "buffer_bound"}
)
"""Keys of attribute statements; values are numbers except for `ATTRIBUTE_WORDS`."""

ANNOTATIONS: Final = (
    _NUMBERS
    | split_words(
        """
        auto_copy axis buffer_dim_align explicit_read_region explicit_write_region
        irregular_loop_mark layout_free_placeholders local_stage require_bound_predicate
        schedule_rule software_pipeline_async_stages software_pipeline_order
        software_pipeline_stage tirx.manifest_shared_memory_local_stage
        tirx.script_parsing_detect_access tirx.volatile vector_bytes warp_execution workload
        auto_scheduler_simplify_const_tensor_indices
        """
    )
    | split_words(
        """
        auto_tensorize auto_tensorize_init cooperative_fetch inline_rule layout_rewrite_preproc
        parallel random_compute_producer thread_extent_high_inclusive thread_extent_low_inclusive
        tiling_structure unroll_explicit unroll_implicit vectorize
        """,
        "meta_schedule.",
    )
)
"""Keys of annotations; their values are numbers, short names, buffers, and lists of these."""

FUNCTION_ATTRIBUTES: Final = split_words(
    """
    autopipe.arithmetic_functions autopipe.attention autopipe.computed_rounds autopipe.found
    autopipe.library autopipe.recurrence autopipe.regions
    autopipe.sizes global_symbol
    layout_free_buffers num_input op_info op_pattern relax.force_pure s_tir tirx.is_scheduled
    tirx.noalias Primitive
    """
)

THREADS: Final = frozenset({"", "vthread"}).union(
    *(split_words("x y z", f"{of}.") for of in ("blockIdx", "threadIdx", "vthread"))
)
"""Tags of threads, which are written into the text of GPU kernels."""

SCOPES: Final = {""} | split_words(
    "global shared shared.dyn local warp wmma.matrix_a wmma.matrix_b wmma.accumulator"
)
"""Kinds of memory."""

WORDS: Final = frozenset({"shared", "shared.dyn", "warp", "row_major", "col_major"})
"""String arguments of GPU ops."""

NODES: Final = split_words(
    """
    Add And AllocBuffer AttrStmt Axis Bind BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Break
    Broadcast BufferRegionType BufferStore BufferType Call Cast CommReducer Continue DeclBuffer Div
    EQ Evaluate FloatImm FloorDiv FloorMod For FuncType GE GT GlobalVar IfThenElse IntImm Iter
    IterVar LE LShift LT Let MatchBufferRegion Max Min Mod Mul NE Not Or PointerType PrimFunc
    PrimType RShift Ramp Range Reduce Return SBlock SBlockRealize Select SeqStmt Shuffle SizeVar
    StringImm StringType Sub TensorLoad TensorRegion TileLayout TupleType Var VectorLane While
    AnyType Constant DataTypeImm DataflowBlock DataflowVar ExternFunc Function GenericConst If
    BindingBlock MatchCast Op PrimStruct PrimValue SeqExpr ShapeExpr ShapeType Tensor TensorType
    Tuple TupleGetItem VDevice VarBinding DictAttrs
    Array Map List Dict String str int float bool NoneType dtype DataType Bool
    """
)
"""Kinds of nodes of TIR and Relax, and of their attributes."""
