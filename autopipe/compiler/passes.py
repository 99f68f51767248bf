"""The graph passes. They are run once: tuning and build start from the same lowered module."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm.relax import transform

from autopipe.compiler import op_info
from autopipe.compiler.call_labels import CallLabels
from autopipe.compiler.exact_divisions import protected
from autopipe.compiler.fusion.growth import keep_growth_apart
from autopipe.compiler.fusion.mergeable import mergeable
from autopipe.compiler.fusion.neighbours import Pays
from autopipe.compiler.fusion.scope import Scope, fuse
from autopipe.compiler.graph import elementary, weights
from autopipe.compiler.graph.attention import attention
from autopipe.compiler.graph.buffer_layouts import without_layouts
from autopipe.compiler.graph.dead_taps import without_dead_taps
from autopipe.compiler.graph.half import widen
from autopipe.compiler.graph.layout import (
    LayoutReport,
    Report,
    convert_layout,
    layout_report,
)
from autopipe.compiler.graph.legalize import legalize, refusals, unlowered
from autopipe.compiler.graph.live_regions import by_live_regions
from autopipe.compiler.graph.long_means import stepwise_means
from autopipe.compiler.graph.rounded_weights import rounded
from autopipe.compiler.graph.scalars import plain_numbers
from autopipe.compiler.graph.separated import small_turned
from autopipe.compiler.graph.short_products import ShortProducts, short_products
from autopipe.compiler.graph.sizes_first import sizes_first
from autopipe.compiler.graph.transposed import plain_convolutions
from autopipe.compiler.graph.turned_pads import turned_pads
from autopipe.compiler.node_labels import complete_labels, keep_merged
from autopipe.compiler.target.target import backend_of
from autopipe.compiler.walls import gate
from autopipe.errors import ModelError


@dataclass(frozen=True, slots=True)
class Optimized:
    """A module ready to be lowered."""

    module: tvm.IRModule
    """`main` takes the model's inputs, then the transformed weights."""
    transform: tvm.IRModule
    """`main_transform_params` takes a tuple of the weights and returns the transformed ones."""
    layout: LayoutReport
    """Layouts and transposes that are left."""
    rounded: tuple[int, ...]
    """Weights that are rounded to bfloat16, counted from 0."""
    products: ShortProducts | None
    """Which products are in bfloat16; None if none are wanted."""


def optimize(  # noqa: PLR0913 -- one for each thing that a pipeline file says
    module: tvm.IRModule,
    inputs: int,
    layout: Mapping[str, Sequence[str]],
    target: tvm.target.Target,
    warn: Report,
    *,
    round_weights: bool = False,
    round_products: bool = False,
) -> Optimized:
    """Simplify the graph, convert layouts and lift all work on weights out of `main`.

    The first `inputs` parameters of `main` are inputs of the model; the rest are weights. With
    `round_weights`, those of matrix products become bfloat16; with `round_products`, both operands
    of products with weights do.
    Raises ModelError if TVM fails on an op, and for a model that carries code.
    """
    gate.of_model(module)  # to fold its constants, TVM compiles and runs parts of it
    with target, tvm.transform.PassContext(opt_level=3), refusals():
        imported = module
        # Phase 1: inference only, no aliases
        module = _for_inference(module, target)
        products = None
        if round_products:
            products = short_products(module, inputs, channels_last=channels_last(layout))
            module = products.module
        module = by_live_regions(without_dead_taps(module))
        # Phase 2: layouts
        module = convert_layout(module, layout, warn) if layout else module
        module = small_turned(stepwise_means(turned_pads(module)))
        # Phase 3: clean up what the phases above left
        module = _sequence(
            transform.Normalize(),
            transform.CanonicalizeBindings(),
            transform.EliminateCommonSubexpr(),
            transform.FoldConstant(),
            transform.DeadCodeElimination(),
        )(module)
        # Phase 4: what depends on weights alone is done once, at compile time
        module, short = rounded(module, inputs) if round_weights else (module, ())
        module = complete_labels(keep_merged(imported, module))
        entry = module.get_global_var("main")
        module.update_func(entry, module[entry].with_attr("num_input", inputs))
        kept, work = weights.lift(module)
    return Optimized(kept, work, layout_report(kept), short, products)


def rounding_as_built(
    module: tvm.IRModule, inputs: int, target: tvm.target.Target, *, channels_last: bool
) -> tvm.IRModule:
    """Return an imported module with the products in bfloat16 that `optimize` rounds, and no more.

    A build is compared with it. Raises ModelError as `optimize`.
    """
    gate.of_model(module)
    with target, tvm.transform.PassContext(opt_level=3), refusals():
        module = _for_inference(module, target)
        return short_products(module, inputs, channels_last=channels_last).module


def channels_last(layout: Mapping[str, Sequence[str]]) -> bool:
    """Tell whether layouts put the channels of convolutions last."""
    return tuple(layout.get("conv2d", ())) == ("NHWC", "HWIO")


def _for_inference(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    decomposed = _sequence(transform.CanonicalizeBindings(), transform.DecomposeOpsForInference())(
        module
    )
    return widen(plain_convolutions(plain_numbers(decomposed)), target)


def lower(
    module: tvm.IRModule,
    target: tvm.target.Target,
    *,
    fast_algorithms: bool = True,
    scope: Scope | None = None,
    pays: Pays | None = None,
) -> tvm.IRModule:
    """Legalize ops to PrimFuncs and fuse them. Each PrimFunc tells its ops in `op_info`.

    `main` of the result calls PrimFuncs only. Parameters of a PrimFunc that are weights are marked,
    since their layout may still change. `fast_algorithms` allows elementary functions that round
    differently from libm's. `scope` says which ops become one function, if TVM is not to decide it;
    attention is one function where no rule says otherwise, and so are neighbouring convolutions of
    which `pays` says so.
    Raises ModelError that names the ops that TVM can not lower, and for a model that carries code.
    """
    gate.of_model(module)
    with target, tvm.transform.PassContext(opt_level=3), refusals():
        # Phase 1: ops to PrimFuncs
        if backend_of(target).processor and not (scope and scope.rules):
            module = complete_labels(keep_merged(module, attention(module)))
        named, ops, labels = op_info.name_ops(module)
        legalized = without_layouts(legalize(named))
        legalized = keep_growth_apart(transform.AnnotateTIROpPattern()(legalized))
        if stuck := unlowered(legalized):
            raise ModelError(f"TVM has no compute for {', '.join(stuck)} as this model uses it")
        parts = op_info.parts(legalized, ops)
        # Phase 2: fusion
        folded = transform.FoldConstant()(legalized)
        calls = CallLabels(folded, labels)
        fused = mergeable(
            folded,
            lambda module: fuse(module, ops, parts, scope, pays),
        )
        infos = op_info.describe(fused, parts)
        fused = calls.apply(fused)
        # Phase 3: one PrimFunc a fused function, its weights free in layout
        merged = _sequence(transform.FuseTIR(), transform.DeadCodeElimination())(fused)
        lowered = _sequence(
            transform.AttachAttrLayoutFreeBuffers(),
            transform.DeadCodeElimination(),
        )(op_info.carry(merged, infos))
        lowered = protected(sizes_first(lowered))
    return elementary.mark(lowered) if fast_algorithms and backend_of(target).processor else lowered


def _sequence(*passes: tvm.transform.Pass) -> tvm.transform.Sequential:
    return tvm.transform.Sequential(list(passes))
