"""Takes out transposes that undo each other, with ops between them that go with any order of axes.

Models carry transposes of their own, such as those around a layer norm over channels, and layouts
that are converted put others beside them. Some change nothing, and some undo what was done before:

    permute_dims(permute_dims(x, [0, 3, 1, 2]), [0, 2, 3, 1])    becomes    x

TVM's layout conversion stops at ops that it has no rule for, such as padding by a reflection. An op
is moved before a transpose where the opposite transpose follows:

    a = permute_dims(x, [0, 3, 1, 2])         # NHWC to NCHW
    b = pad(a, reflect, H and W)        becomes    c = pad(x, reflect, H and W)
    c = permute_dims(b, [0, 2, 3, 1])         # and back
"""

from collections import defaultdict
from collections.abc import Sequence
from math import prod
from typing import Final

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from autopipe.compiler.graph.calls import bindings, graph_functions
from autopipe.compiler.graph.literals import known_shape
from autopipe.compiler.graph.rewrite import rewrite

_PERMUTE: Final = "relax.permute_dims"
_PAD: Final = "relax.nn.pad"
_RESIZE: Final = "relax.image.resize2d"
_UNARY: Final = frozenset(
    f"relax.{name}"
    for name in ("abs", "clip", "erf", "exp", "log", "negative", "nn.gelu", "nn.leakyrelu",
                 "nn.relu", "nn.silu", "nn.softplus", "rsqrt", "sigmoid", "sqrt", "square", "tanh")
)  # fmt: skip
_BINARY: Final = frozenset(
    f"relax.{name}" for name in ("add", "divide", "maximum", "minimum", "multiply", "subtract")
)
_SMALL: Final = 8
"""An operand that has this much less elements than the result may be transposed for it."""

Axes = tuple[int, ...]


def fewer_transposes(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module without transposes that undo each other."""
    wanted: dict[relax.Var, frozenset[Axes]] = defaultdict(frozenset)
    for _, function in graph_functions(module):
        for binding in reversed(list(bindings(function))):
            for var, axes in _wishes(binding, wanted):
                wanted[var] |= axes
    return rewrite(_Moving(module, wanted), module)


def _wishes(
    binding: relax.Binding, wanted: dict[relax.Var, frozenset[Axes]]
) -> list[tuple[relax.Var, frozenset[Axes]]]:
    """Return which transposes follow the operands of a call, at once or behind ops that move."""
    call = binding.value
    name = _name(call)
    if name == _PERMUTE:
        return [(arg, frozenset([_axes(call)])) for arg in call.args if isinstance(arg, relax.Var)]
    moving = name in _UNARY or name in _BINARY or name in (_PAD, _RESIZE)
    if not moving or not wanted[binding.var]:
        return []
    return [(arg, wanted[binding.var]) for arg in call.args
            if isinstance(arg, relax.Var) and _rank(arg) == _rank(binding.var)]  # fmt: skip


@mutator
class _Moving(PyExprMutator):
    def __init__(self, module: tvm.IRModule, wanted: dict[relax.Var, frozenset[Axes]]) -> None:
        super().__init__(module)
        self._wanted = wanted
        self._behind: frozenset[Axes] = frozenset()

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self._behind = self._wanted[binding.var]
        super().visit_var_binding_(binding)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if _name(call) == _PERMUTE:
            return self._composed(call)
        turned = [found[1] for arg in call.args if (found := self._source(arg))]
        fitting = [axes for axes in turned if _inverse(axes) in self._behind]
        moved = self._moved(call, fitting[0]) if fitting else None
        if moved is None:
            return call
        return relax.op.permute_dims(self.builder_.emit(moved), list(fitting[0]))

    def _composed(self, call: relax.Call) -> relax.Expr:
        """Return two transposes as one, and none for one that changes nothing."""
        source, axes = call.args[0], _axes(call)
        if (before := self._source(source)) is not None:
            source, axes = before[0], tuple(before[1][axis] for axis in axes)
        if axes == tuple(range(len(axes))):
            return source
        return call if before is None else relax.op.permute_dims(source, list(axes))

    def _source(self, arg: relax.Expr) -> tuple[relax.Expr, Axes] | None:
        """Return what a variable is a transpose of, and its axes."""
        bound = self.lookup_binding(arg) if isinstance(arg, relax.Var) else None
        if bound is None or _name(bound) != _PERMUTE:
            return None
        return bound.args[0], _axes(bound)

    def _moved(self, call: relax.Call, axes: Axes) -> relax.Expr | None:
        """Return the op on what was not transposed yet, None if it can not be moved."""
        name = _name(call)
        if name == _PAD:
            widths = [int(width) for width in call.attrs.pad_width]
            pairs = [widths[2 * at : 2 * at + 2] for at in _inverse(axes)]
            flat = [width for pair in pairs for width in pair]
            attrs = call.attrs
            source = self._untransposed(call, call.args[0], axes)
            return relax.op.nn.pad(source, flat, str(attrs.pad_mode), float(attrs.pad_value))
        if name == _RESIZE:
            return self._resized(call, axes)
        if name in _UNARY:
            others = call.args[1:]
            source = self._untransposed(call, call.args[0], axes)
            return relax.Call(call.op, [source, *others], call.attrs)
        if name in _BINARY:
            args = [self._untransposed(call, arg, axes) for arg in call.args]
            return None if None in args else relax.Call(call.op, args, call.attrs)
        return None

    def _resized(self, call: relax.Call, axes: Axes) -> relax.Expr | None:
        attrs = call.attrs
        layout = "".join(str(attrs.layout)[at] for at in _inverse(axes))
        if layout not in ("NCHW", "NHWC") or len(attrs.roi) != len(axes):
            return None
        return relax.op.image.resize2d(
            self._untransposed(call, call.args[0], axes), call.args[1], list(attrs.roi), layout,
            attrs.method, attrs.coordinate_transformation_mode, attrs.rounding_method,
            attrs.cubic_alpha, attrs.cubic_exclude, attrs.extrapolation_value, attrs.out_dtype,
        )  # fmt: skip

    def _untransposed(self, call: relax.Call, arg: relax.Expr, axes: Axes) -> relax.Expr | None:
        """Return an operand as it is before the transpose; a small one is transposed for it."""
        found = self._source(arg)
        if found is not None and found[1] == axes:
            return found[0]
        if _rank(arg) == 0:
            return arg
        shape, whole = known_shape(arg), known_shape(call)
        if shape is None or whole is None or len(shape) != len(axes):
            return None
        if prod(shape) * _SMALL > prod(whole):
            return None
        return self.builder_.emit(relax.op.permute_dims(arg, list(_inverse(axes))))


def _name(value: relax.Expr | None) -> str:
    op = getattr(value, "op", None) if isinstance(value, relax.Call) else None
    return str(getattr(op, "name", ""))


def _axes(call: relax.Call) -> Axes:
    given: Sequence[int] | None = call.attrs.axes
    rank = _rank(call.args[0])
    return tuple(int(axis) % rank for axis in given) if given else tuple(reversed(range(rank)))


def _inverse(axes: Axes) -> Axes:
    return tuple(axes.index(at) for at in range(len(axes)))


def _rank(value: relax.Expr) -> int:
    return int(getattr(value.ty, "ndim", -1))
