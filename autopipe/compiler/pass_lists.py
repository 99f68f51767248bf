"""The order of all passes between an imported graph and machine code: nothing else has one.

    OPTIMIZE          the stage *optimize*: ops of Relax in their final layouts
    LOWER             the stage *lower*: one kernel (PrimFunc) for each group of fused ops
    LINK              the stage *build*: kernels replaced by their schedules, work on weights apart
    MACHINE_DYNAMIC   code for the virtual machine, for dynamic shapes; static ones take TVM's list
    KERNELS           loops of kernels as they are scheduled, before TVM's own list
                      before these, `KERNELS_DYNAMIC` are run where a size is dynamic
    HOST_KERNELS      loops for a processor as LLVM gets them, after it; `HOST_KERNELS_DYNAMIC` are
                      run before these where a size is dynamic

A pass is a file of `compiler/passes/` or `compiler/codegen/` of its name, and one line here.
"""

from typing import Final

import tvm
from tvm import relax
from tvm.relax import transform

from autopipe.compiler.arithmetic.wrapping_integers import widen_wrapping
from autopipe.compiler.codegen.assume_nonnegative_sizes import assume_nonnegative_sizes
from autopipe.compiler.codegen.choose_once_per_vector import choose_once_per_vector
from autopipe.compiler.codegen.configure_tiles import configure_tiles
from autopipe.compiler.codegen.join_row_indices import join_row_indices
from autopipe.compiler.codegen.keep_in_registers import keep_in_registers
from autopipe.compiler.codegen.multiply_by_reciprocals import multiply_by_reciprocals
from autopipe.compiler.codegen.order_size_stores import order_size_stores
from autopipe.compiler.codegen.propagate_nan import propagate_nan
from autopipe.compiler.codegen.round_to_bfloat16 import round_to_bfloat16
from autopipe.compiler.codegen.share_loop_bodies import share_loop_bodies, state_device
from autopipe.compiler.codegen.share_shapes import share_shapes
from autopipe.compiler.codegen.split_at_borders import split_at_borders
from autopipe.compiler.codegen.type_bfloat16_operands import type_bfloat16_operands
from autopipe.compiler.graph import elementary
from autopipe.compiler.graph.contents import CONSTANT
from autopipe.compiler.graph.convolutions import LAYOUTS, TRANSPOSED_LAYOUTS
from autopipe.compiler.graph.hoist import COUNT
from autopipe.compiler.graph.split_resize import RESIZE
from autopipe.compiler.labels.node_labels import complete_labels, keep_merged
from autopipe.compiler.loops.exact_divisions import protect_divisions, protect_module_divisions
from autopipe.compiler.named_pass import (
    KernelPass,
    NamedPass,
    PassPhase,
    kernel_module_pass,
    kernel_pass,
    module_pass,
    tvm_pass,
)
from autopipe.compiler.pass_state import LinkState, LowerState, OptimizeState
from autopipe.compiler.passes.add_destinations import add_destinations
from autopipe.compiler.passes.compute_sizes_first import compute_sizes_first
from autopipe.compiler.passes.convert_layout import convert_layout
from autopipe.compiler.passes.drop_buffer_layouts import drop_buffer_layouts
from autopipe.compiler.passes.drop_dead_taps import drop_dead_taps
from autopipe.compiler.passes.fold_constants import fold_constants
from autopipe.compiler.passes.fuse_attention import SOFTMAX, fuse_attention
from autopipe.compiler.passes.fuse_ops import describe_kernels, fuse_ops, match_ops, name_ops
from autopipe.compiler.passes.inline_bodies import inline_bodies
from autopipe.compiler.passes.inline_scalars import inline_scalars
from autopipe.compiler.passes.insert_schedules import add_kernel, insert_schedules
from autopipe.compiler.passes.keep_growth_apart import keep_growth_apart
from autopipe.compiler.passes.legalize import legalize_ops
from autopipe.compiler.passes.lift_weights import lift_weights
from autopipe.compiler.passes.mark_weight_buffers import mark_weight_buffers
from autopipe.compiler.passes.order_size_params import order_size_params
from autopipe.compiler.passes.pad_in_place import PAD, pad_in_place
from autopipe.compiler.passes.prepare_weights import prepare_weights
from autopipe.compiler.passes.replace_copies_by_views import (
    RESHAPE,
    replace_copies_by_views,
    replace_dynamic_copies,
)
from autopipe.compiler.passes.rewrite_transposed_convolutions import rewrite_transposed_convolutions
from autopipe.compiler.passes.round_products import round_products
from autopipe.compiler.passes.round_weights import round_weights
from autopipe.compiler.passes.split_by_live_regions import split_by_live_regions
from autopipe.compiler.passes.split_long_means import MOMENTS, split_long_means
from autopipe.compiler.passes.split_packing import split_packing
from autopipe.compiler.passes.transpose_before_resize import transpose_before_resize
from autopipe.compiler.passes.widen_to_float32 import widen_to_float32
from autopipe.compiler.target.target import backend_of


def _round_products(module: tvm.IRModule, state: OptimizeState) -> tvm.IRModule:
    state.products = round_products(module, state.inputs, channels_last=state.channels_last)
    return state.products.module


def _round_weights(module: tvm.IRModule, state: OptimizeState) -> tvm.IRModule:
    module, state.rounded_weights = round_weights(module, state.inputs)
    return module


def _lift_model_weights(module: tvm.IRModule, state: OptimizeState) -> tvm.IRModule:
    entry = module.get_global_var("main")
    module.update_func(entry, module[entry].with_attr(COUNT, state.inputs))
    module, state.transform = lift_weights(module)
    return module


def _lift_packing(module: tvm.IRModule, state: LinkState) -> tvm.IRModule:
    module, state.packing = lift_weights(module)
    return module


def _label_merged(module: tvm.IRModule, before: tvm.IRModule) -> tvm.IRModule:
    return complete_labels(keep_merged(before, module))


def _fuse_attention(module: tvm.IRModule, _: LowerState) -> tvm.IRModule:
    return _label_merged(fuse_attention(module), module)


INFERENCE: Final[PassPhase[OptimizeState]] = PassPhase(
    "inference",
    (
        tvm_pass(transform.CanonicalizeBindings, "a value has one name, so that patterns match"),
        tvm_pass(transform.DecomposeOpsForInference, "batch normalization is arithmetic"),
        module_pass(inline_scalars, "a constant of one element needs no memory", {CONSTANT}),
        module_pass(
            rewrite_transposed_convolutions,
            "all schedules of convolutions serve transposed ones",
            TRANSPOSED_LAYOUTS,
        ),
        NamedPass(
            "widen_to_float32",
            "float16 is converted once, and not at each operation",
            lambda module, state: widen_to_float32(module, state.target),
        ),
    ),
)

ROUNDED_PRODUCTS: Final[PassPhase[OptimizeState]] = PassPhase(
    "products in bfloat16",
    (
        NamedPass(
            "round_products",
            "products of bfloat16 take fewer instructions",
            _round_products,
            lambda state: state.round_products,
            "`numerics.compute: bfloat16`",
        ),
    ),
)

OPTIMIZE: Final[tuple[PassPhase[OptimizeState], ...]] = (
    INFERENCE,
    ROUNDED_PRODUCTS,
    PassPhase(
        "convolutions",
        (
            module_pass(drop_dead_taps, "a tap that reads only padding is zero", LAYOUTS),
            module_pass(split_by_live_regions, "parts of images read few dilated taps", LAYOUTS),
        ),
    ),
    PassPhase(
        "layouts",
        (
            NamedPass(
                "convert_layout",
                "schedules want the channels last, or whatever `layout` states",
                lambda module, state: convert_layout(module, state.layout, state.warn),
                lambda state: bool(state.layout),
                "`layout` names an operator",
            ),
            module_pass(
                pad_in_place, "padding between two transposes needs neither of them", {PAD}
            ),
            module_pass(
                split_long_means, "a long sum in float32 drifts unless taken in steps", MOMENTS
            ),
            module_pass(
                transpose_before_resize, "a transpose of the smaller image moves less", {RESIZE}
            ),
        ),
    ),
    PassPhase(
        "clean-up",
        (
            tvm_pass(transform.Normalize, "rewrites left nested expressions"),
            tvm_pass(transform.CanonicalizeBindings, "rewrites left aliases"),
            tvm_pass(transform.EliminateCommonSubexpr, "equal values are computed once"),
            module_pass(fold_constants, "what depends on constants is computed here"),
            tvm_pass(transform.DeadCodeElimination, "what nothing reads is dropped"),
        ),
    ),
    PassPhase(
        "weights",
        (
            NamedPass(
                "round_weights",
                "a product of few rows takes as long as its weights take from memory",
                _round_weights,
                lambda state: state.round_weights,
                "`numerics.weights: bfloat16`",
            ),
            NamedPass(
                "label_nodes",
                "each value names the nodes of the model that it is computed for",
                lambda module, state: _label_merged(module, state.imported),
            ),
            NamedPass(
                "lift_weights",
                "what depends on weights alone is computed once, by the build",
                _lift_model_weights,
            ),
        ),
    ),
)

LOWER: Final[tuple[PassPhase[LowerState], ...]] = (
    PassPhase(
        "ops to kernels",
        (
            NamedPass(
                "fuse_attention",
                "the scores of attention need no memory of their own",
                _fuse_attention,
                lambda state: backend_of(state.target).fuses_attention and not state.has_rules,
                "on a processor, without rules of `fusion`",
                frozenset({SOFTMAX}),
            ),
            NamedPass("name_ops", "ops are found again by the names of their variables", name_ops),
            module_pass(legalize_ops, "each op is a call of a kernel with plain loops"),
            module_pass(drop_buffer_layouts, "layouts of buffers of dynamic sizes would be stale"),
            tvm_pass(transform.AnnotateTIROpPattern, "fusion asks what kind of loops a kernel has"),
            module_pass(keep_growth_apart, "no product is fused with an op that enlarges it"),
            NamedPass("match_ops", "each kernel states the op it computes", match_ops),
            module_pass(fold_constants, "kernels of constants are computed here"),
        ),
    ),
    PassPhase(
        "fusion",
        (
            NamedPass("fuse_ops", "a chain of ops is one kernel, without memory between", fuse_ops),
            tvm_pass(transform.FuseTIR, "the loops of a group are one PrimFunc"),
            tvm_pass(transform.DeadCodeElimination, "kernels that were fused are dropped"),
            NamedPass("describe_kernels", "each kernel states its ops and nodes", describe_kernels),
        ),
    ),
    PassPhase(
        "kernels for schedules",
        (
            module_pass(mark_weight_buffers, "schedules may choose the layout of weights"),
            tvm_pass(transform.DeadCodeElimination, "copies without a use are dropped"),
            module_pass(compute_sizes_first, "fusion may put a size behind the tensor that has it"),
            module_pass(order_size_params, "the same model gives the same kernels in each run"),
            module_pass(protect_module_divisions, "TVM's iteration maps misread some divisions"),
            NamedPass(
                "mark_elementary",
                "elementary functions may become arithmetic, which LLVM vectorizes",
                lambda module, _: elementary.mark_inexact(module),
                lambda state: (
                    state.fast_algorithms and backend_of(state.target).expands_elementary_functions
                ),
                "on a processor, with `numerics.fast_algorithms`",
            ),
            module_pass(replace_dynamic_copies, "a view of dynamic shapes is no task"),
        ),
    ),
)

LINK: Final[tuple[PassPhase[LinkState], ...]] = (
    PassPhase(
        "schedules",
        (
            module_pass(replace_copies_by_views, "a copy that keeps the order of memory is a view"),
            NamedPass("insert_schedules", "each kernel gets its schedule", insert_schedules),
            NamedPass(
                "expand_elementary",
                "LLVM vectorizes arithmetic, and calls libm for each element otherwise",
                lambda module, state: elementary.expand_for_target(module, state.target),
            ),
        ),
    ),
    PassPhase(
        "weights",
        (
            module_pass(split_packing, "schedules pack weights, which is done once, by the build"),
            tvm_pass(transform.CanonicalizeBindings, "rewrites left aliases"),
            NamedPass("lift_packing", "packing is a module of its own", _lift_packing),
        ),
    ),
    PassPhase(
        "calls",
        (
            module_pass(inline_bodies, "calling a function costs the machine microseconds"),
            NamedPass(
                "prepare_weights", "weights are checked once and kept small", prepare_weights
            ),
            NamedPass("add_destinations", "large fixed outputs are not copied", add_destinations),
            module_pass(add_kernel, "a model without kernels would have no object file"),
        ),
    ),
)

_AS_TVM: Final = "as in TVM's list `default`"

_MACHINE: Final = (
    transform.ToNonDataflow, transform.RemovePurityChecking, transform.CallTIRRewrite,
    transform.StaticPlanBlockMemory, transform.LowerAllocTensor, transform.KillAfterLastUse,
    transform.LowerRuntimeBuiltin, transform.ComputePrimValue, transform.VMShapeLower,
    transform.AttachGlobalSymbol,
)  # fmt: skip

MACHINE_DYNAMIC: Final[tuple[PassPhase[None], ...]] = (
    PassPhase(
        "virtual machine, dynamic shapes",
        (
            tvm_pass(relax.backend.DispatchSampling, _AS_TVM),
            tvm_pass(relax.backend.DispatchSortScan, _AS_TVM),
            NamedPass(
                "LegalizeOps",
                "views stay views; TVM's list would make copies of them",
                lambda module, _: transform.LegalizeOps({RESHAPE: lambda _, call: call})(module),
            ),
            *(tvm_pass(make, _AS_TVM) for make in _MACHINE),
            module_pass(share_shapes, "a shape is made once in a call, and not for each tensor"),
            module_pass(order_size_stores, "the same model gives the same bytes"),
        ),
    ),
)

KERNELS: Final[tuple[KernelPass, ...]] = (
    kernel_pass(widen_wrapping, "LLVM assumes that integers of 32 and 64 bits do not overflow"),
    kernel_pass(protect_divisions, "TVM's iteration maps misread some divisions of indices"),
    kernel_pass(round_to_bfloat16, "TVM drops roundings to bfloat16 inside of a kernel"),
    kernel_pass(choose_once_per_vector, "TVM makes no vectors of a loop that chooses elements"),
)

KERNELS_DYNAMIC: Final[tuple[KernelPass, ...]] = (
    kernel_pass(join_row_indices, "TVM splits and joins the rows of a tile by divisions"),
    kernel_module_pass(share_loop_bodies, "parallel and serial loops of one body compile it once"),
)

HOST_KERNELS_DYNAMIC: Final[tuple[KernelPass, ...]] = (
    kernel_pass(state_device, "shared bodies of loops allocate memory, too"),
    kernel_pass(assume_nonnegative_sizes, "division by a nonnegative size is one instruction"),
)

HOST_KERNELS: Final[tuple[KernelPass, ...]] = (
    kernel_pass(split_at_borders, "LLVM vectorizes no loop whose index is clamped or wrapped"),
    kernel_pass(propagate_nan, "minima and maxima of LLVM lose NaN"),
    kernel_pass(multiply_by_reciprocals, "a product takes a fifth of a division"),
    kernel_pass(keep_in_registers, "LLVM keeps in registers what is on the stack"),
    kernel_pass(type_bfloat16_operands, "TVM's code generation has no operands of bfloat16"),
    kernel_pass(configure_tiles, "AMX tiles are configured once for each thread"),
)
