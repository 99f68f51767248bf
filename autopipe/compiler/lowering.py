"""Compile an imported module to kernels: the stages *optimize* and *lower*.

They are run once. Tuning and build start from the same lowered module.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm

from autopipe.compiler.fusion.neighbours import Pays
from autopipe.compiler.fusion.scope import Scope
from autopipe.compiler.named_pass import run_passes
from autopipe.compiler.pass_lists import INFERENCE, LOWER, OPTIMIZE, ROUNDED_PRODUCTS
from autopipe.compiler.pass_observer import pass_context
from autopipe.compiler.pass_state import LowerState, OptimizeState
from autopipe.compiler.passes.convert_layout import LayoutReport, Report, count_layouts
from autopipe.compiler.passes.legalize import raise_model_errors
from autopipe.compiler.passes.round_products import RoundedProducts
from autopipe.compiler.walls.model_check import check_model


@dataclass(frozen=True, slots=True)
class Optimized:
    """A module ready to be lowered."""

    module: tvm.IRModule
    """`main` takes the model's inputs, then the transformed weights."""
    transform: tvm.IRModule
    """`main_transform_params` takes a tuple of the weights and returns the transformed ones."""
    layout: LayoutReport
    """Layouts and remaining transposes."""
    rounded: tuple[int, ...]
    """Weights that are rounded to bfloat16, counted from 0."""
    products: RoundedProducts | None
    """The matmuls in bfloat16; None if not enabled."""


def optimize(  # noqa: PLR0913 -- one for each option of a pipeline file
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
    `round_weights`, those of matmuls become bfloat16; with `round_products`, both operands of
    matmuls and convolutions with weights do.
    Raises ModelError if TVM fails on an op, and for a model that carries code.
    """
    check_model(module)  # to fold its constants, TVM compiles and runs parts of it
    state = OptimizeState(
        module,
        inputs,
        target,
        layout,
        warn,
        channels_last=is_channels_last(layout),
        round_weights=round_weights,
        round_products=round_products,
    )
    with target, pass_context(), raise_model_errors():
        new_module = run_passes(module, OPTIMIZE, state)
    layouts = count_layouts(new_module)
    return Optimized(new_module, state.transform, layouts, state.rounded_weights, state.products)


def round_products_as_built(
    module: tvm.IRModule, inputs: int, target: tvm.target.Target, *, channels_last: bool
) -> tvm.IRModule:
    """Round the matmuls of an imported module as `optimize` does, without other passes.

    Builds are verified against it. Raises ModelError as `optimize`.
    """
    check_model(module)
    state = OptimizeState(
        module, inputs, target, {}, lambda _: None, channels_last=channels_last, round_products=True
    )
    with target, pass_context(), raise_model_errors():
        return run_passes(module, (INFERENCE, ROUNDED_PRODUCTS), state)


def is_channels_last(layout: Mapping[str, Sequence[str]]) -> bool:
    """Tell whether layouts put the channels of convolutions last."""
    return tuple(layout.get("conv2d", ())) == ("NHWC", "HWIO")


def lower(
    module: tvm.IRModule,
    target: tvm.target.Target,
    *,
    fast_algorithms: bool = True,
    scope: Scope | None = None,
    pays: Pays | None = None,
) -> tvm.IRModule:
    """Legalize ops to PrimFuncs and fuse them. Attribute `op_info` has the ops of each.

    `main` of the result calls PrimFuncs, and with dynamic shapes views. Parameters of a PrimFunc
    that are weights are marked, since their layout may still change. `fast_algorithms` allows
    elementary functions that round differently from libm's. `scope` states which ops become one
    function, if TVM does not decide; attention is one function where no rule states otherwise, and
    so are neighbouring convolutions for which `pays` holds.
    Raises ModelError that names the ops that TVM cannot lower, and for a model that carries code.
    """
    check_model(module)
    state = LowerState(target, fast_algorithms, scope, pays)
    with target, pass_context(), raise_model_errors():
        return run_passes(module, LOWER, state)
