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
from typing import Final

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from autopipe.compiler.graph.calls import graph_functions, list_bindings
from autopipe.compiler.graph.contents import list_contents
from autopipe.compiler.graph.distinct_calls import collect_distinct_calls
from autopipe.compiler.graph.hide_from_layouts import hide_ops, restore_ops
from autopipe.compiler.graph.rewrite import rewrite_graph
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
    module = rewrite_graph(_FullRank(module), module)
    if list_contents(module).isdisjoint(wishes):
        return module
    try:
        visible_module, hidden_calls = hide_ops(module)
        converted_module = restore_ops(propagate_layouts(visible_module, wishes), hidden_calls)
        if not list_contents(converted_module).isdisjoint(ONE_LAYOUT):
            converted_module = rewrite_graph(
                _Materialize(converted_module, ONE_LAYOUT), converted_module
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
    return rewrite_graph(_Materialize(module, wishes), module)


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


def _read_rank(expr: relax.Expr) -> int:
    ty = expr.ty
    return int(ty.ndim) if isinstance(ty, relax.TensorType) else -1


@mutator
class _FullRank(PyExprMutator):
    """Give both sides of a broadcast the same rank, which layout inference needs.

    ONNX writes a scale per channel as (C, 1, 1). TVM cannot propagate a layout through the product
    of that with (N, C, H, W), and puts a transpose before and after it.
    """

    BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        name = getattr(call.op, "name", "").removeprefix("relax.")
        if name not in self.BINARY:
            return call
        left, right = (_read_rank(arg) for arg in call.args)
        if min(left, right) < 1 or left == right:
            return call
        args = [self._expand_rank(arg, max(left, right)) for arg in call.args]
        return relax.Call(call.op, args, call.attrs)

    def _expand_rank(self, arg: relax.Expr, rank: int) -> relax.Expr:
        missing = rank - _read_rank(arg)
        if missing == 0:
            return arg
        wide = relax.op.expand_dims(arg, list(range(missing)))
        return self.builder_.emit(wide)


@mutator
class _Materialize(PyExprMutator):
    """Insert transposes before and after each op that has a desired layout; change nothing else."""

    def __init__(self, module: tvm.IRModule, wishes: Mapping[str, Sequence[str]]) -> None:
        super().__init__(module)
        self._wishes = wishes

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        wish = self._wishes.get(getattr(call.op, "name", ""))
        if wish is None:
            return call
        attrs = call.attrs
        data = self._permute_axes(call.args[0], str(attrs.data_layout), wish[0])
        kernel = self._permute_axes(call.args[1], str(attrs.kernel_layout), wish[-1])
        operation = getattr(relax.op.nn, call.op.name.removeprefix("relax.nn."))
        extra = {"output_padding": attrs.output_padding} if "transpose" in call.op.name else {}
        result = self.builder_.emit(
            operation(
                data,
                kernel,
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

    def _permute_axes(self, arg: relax.Expr, old: str, new: str) -> relax.Expr:
        if old == new:
            return arg
        return self.builder_.emit(relax.op.permute_dims(arg, [old.index(axis) for axis in new]))
