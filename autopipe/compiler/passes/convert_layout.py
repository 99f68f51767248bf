"""Convert the layouts of a Relax module, and report the remaining transposes.

Example: `{"conv2d": ["NHWC", "HWIO"]}` converts data [1, 64, 56, 56] (NCHW) to [1, 56, 56, 64] and
the kernel [64, 64, 3, 3] (OIHW) to [3, 3, 64, 64]. Between two convolutions no transpose is left,
only one before the first and one after the last; the kernel is transposed once, by the build.

`propagate_layouts` visits the graph with TVM's rules. Layout-agnostic ops take
the layout of their input. If a rule fails on a model, each op is converted by itself instead.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import tvm
from tvm import relax

from autopipe.compiler.graph.calls import graph_functions, list_bindings
from autopipe.compiler.graph.contents import list_contents
from autopipe.compiler.graph.distinct_calls import collect_distinct_calls
from autopipe.compiler.graph.hide_from_layouts import hide_ops, restore_ops
from autopipe.compiler.graph.literals import read_rank
from autopipe.compiler.graph.rewrite import CallSite, rewrite_calls
from autopipe.compiler.passes.legalize import legalize_ops, list_unlegalized_ops
from autopipe.compiler.passes.propagate_layouts import propagate_layouts
from autopipe.errors import ModelError

ONE_LAYOUT = {
    "relax.nn.conv1d_transpose": ("NCW", "IOW"),
    "relax.nn.conv2d_transpose": ("NCHW", "IOHW"),
    "relax.nn.conv3d_transpose": ("NCDHW", "IODHW"),
}
"""Ops that TVM converts to any layout, but computes in this layout of data and kernel only."""

Report = Callable[[str], None]

_BINARY: Final = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LayoutReport:
    """The layouts of a module's ops."""

    layouts: Mapping[str, Mapping[str, int]]
    """Number of ops by op and data layout, such as `{"nn.conv2d": {"NHWC": 53}}`."""
    transposes: int
    """Number of transposes of activations; those of weights run once, at compile time."""


def convert_layout(
    module: tvm.IRModule, desired_layouts: Mapping[str, Sequence[str]], warn: Report
) -> tvm.IRModule:
    """Convert ops to the desired layouts, such as `{"conv2d": ["NHWC", "HWIO"]}`."""
    wishes = {f"relax.nn.{op}": list(layouts) for op, layouts in desired_layouts.items()}
    module = rewrite_calls(_expand_ranks, module)
    if list_contents(module).isdisjoint(wishes):
        return module
    try:
        visible_module, hidden_calls = hide_ops(module)
        converted_module = restore_ops(propagate_layouts(visible_module, wishes), hidden_calls)
        if not list_contents(converted_module).isdisjoint(ONE_LAYOUT):
            converted_module = rewrite_calls(
                partial(_transpose_around, ONE_LAYOUT), converted_module
            )
        stuck = list_unlegalized_ops(legalize_ops(collect_distinct_calls(converted_module)))
        reason = f"there is no compute for {', '.join(stuck)} in the new layout"
    except (ModelError, RuntimeError, LookupError, TypeError, ValueError) as error:
        stuck = ["?"]
        reason = str(error).strip().splitlines()[-1]
    if not stuck:
        _LOG.info("layouts are propagated through the graph")
        return converted_module
    warn(f"layouts are not propagated, each op is converted by itself: {reason}")
    return rewrite_calls(partial(_transpose_around, wishes), module)


def count_layouts(module: tvm.IRModule) -> LayoutReport:
    """Count the layouts and transposes of a graph, without its lifted work on weights."""
    layouts: dict[str, Counter[str]] = {}
    transposes = 0
    for _, function in graph_functions(module):
        for binding in list_bindings(function):
            call = binding.value
            if not isinstance(call, relax.Call) or not isinstance(call.op, tvm.ir.Op):
                continue
            name = call.op.name.removeprefix("relax.")
            layout = getattr(call.attrs, "data_layout", None) or getattr(call.attrs, "layout", None)
            if layout:
                layouts.setdefault(name, Counter())[str(layout)] += 1
            transposes += name in ("permute_dims", "layout_transform")
    return LayoutReport({op: dict(count) for op, count in sorted(layouts.items())}, transposes)


def _expand_ranks(site: CallSite) -> relax.Expr:
    """Give both sides of a broadcast the same rank, which layout inference needs.

    ONNX writes a scale per channel as (C, 1, 1). TVM cannot propagate a layout through the product
    of that with (N, C, H, W), and puts a transpose before and after it.
    """
    call = site.call
    if site.op.removeprefix("relax.") not in _BINARY:
        return call
    ranks = [read_rank(arg.ty) for arg in call.args]
    if min(ranks) < 1 or ranks[0] == ranks[1]:
        return call
    args = [
        site.emit(relax.op.expand_dims(arg, list(range(max(ranks) - rank))))
        if rank < max(ranks)
        else arg
        for arg, rank in zip(call.args, ranks, strict=True)
    ]
    return relax.Call(call.op, args, call.attrs)


def _transpose_around(wishes: Mapping[str, Sequence[str]], site: CallSite) -> relax.Expr:
    """Insert transposes before and after an op that has a desired layout; change nothing else."""
    call, wish = site.call, wishes.get(site.op)
    if wish is None:
        return call
    attrs = call.attrs
    operation = getattr(relax.op.nn, site.op.removeprefix("relax.nn."))
    extra = {"output_padding": attrs.output_padding} if "transpose" in site.op else {}
    result = site.emit(
        operation(
            _permute_axes(site, call.args[0], str(attrs.data_layout), wish[0]),
            _permute_axes(site, call.args[1], str(attrs.kernel_layout), wish[-1]),
            strides=attrs.strides,
            padding=attrs.padding,
            dilation=attrs.dilation,
            groups=attrs.groups,
            data_layout=wish[0],
            kernel_layout=wish[-1],
            out_dtype=attrs.out_dtype,
            **extra,
        )
    )
    return relax.op.permute_dims(result, [wish[0].index(a) for a in str(attrs.out_layout)])


def _permute_axes(site: CallSite, arg: relax.Expr, old: str, new: str) -> relax.Expr:
    if old == new:
        return arg
    return site.emit(relax.op.permute_dims(arg, [old.index(axis) for axis in new]))
