"""Fuse attention into one kernel, so that its scores are not stored.

    heads = permute_dims(q, [0, 2, 1, 3])                  # q [1, 128, 12, 32]
    keys = permute_dims(k, [0, 2, 3, 1])
    scores = add(divide(matmul(heads, keys), 5.66), mask)
    shares = softmax(scores)                               # [1, 12, 128, 128]
    y = matmul(shares, permute_dims(v, [0, 2, 1, 3]))      # [1, 12, 128, 32]
    z = permute_dims(y, [0, 2, 1, 3])
->
    z = attention(q, k, v, mask)                           # [1, 128, 12, 32]

Scaling by constants and a mask are optional. Operands without a `permute_dims` are read directly.
Intermediate results must have no other readers, all tensors must be float32 of static shape, and a
head must have enough queries for a template to compute several at a time.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from autopipe.compiler.attention import AttentionForm, build_attention
from autopipe.compiler.graph.calls import graph_functions, list_bindings
from autopipe.compiler.graph.literals import read_permutation, read_static_shape
from autopipe.compiler.graph.rewrite import rewrite_graph
from autopipe.compiler.labels.node_labels import strip_label

SOFTMAX: Final = "relax.nn.softmax"
"""An op of attention that few other graphs have."""

_FEWEST: Final = 8
"""Smallest number of queries, keys and elements of a head: fewer leave vectors half empty."""

_LARGEST: Final = 1e30
"""Exclusive bound of scales: queries are scaled before the matmul, which must not overflow."""

_SCALED: Final = {"relax.multiply": 1, "relax.divide": -1}
"""Ops that scale by a constant, and the power of it that they multiply by."""


def fuse_attention(module: tvm.IRModule) -> tvm.IRModule:
    """Replace each attention pattern of a graph by one call."""
    graphs = _Graphs(module)
    patterns = dict(filter(None, map(graphs.pattern, graphs.values)))
    if not patterns:
        return module
    return relax.transform.DeadCodeElimination()(rewrite_graph(_Joined(module, patterns), module))


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A match of attention in a graph."""

    form: AttentionForm
    operands: tuple[relax.Expr, ...]
    """Queries, keys, values, and the mask, if there is one."""


@mutator
class _Joined(PyExprMutator):
    """Binds the results of attention to calls of the fused function."""

    def __init__(self, module: tvm.IRModule, patterns: Mapping[relax.Var, _Pattern]) -> None:
        super().__init__(module)
        self._patterns = patterns

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        pattern = self._patterns.get(binding.var)
        if pattern is None:
            super().visit_var_binding_(binding)
            return
        operands = [self.visit_expr(operand) for operand in pattern.operands]
        call = self.builder_.call_te(
            partial(build_attention, pattern.form), *map(_strip_label, operands),
            primfunc_name_hint="attention", primfunc_attrs=pattern.form.attributes,
        )  # fmt: skip
        arguments = [call.args[0], relax.Tuple(operands)]
        value = self.builder_.normalize(relax.Call(call.op, arguments, call.attrs, call.ty_args))
        self.builder_.emit_normalized(relax.VarBinding(self.visit_var_def(binding.var), value))


def _strip_label(operand: relax.Expr) -> relax.Expr:
    """Remove the label from an operand's name, which TVM uses as the name of a buffer."""
    if not isinstance(operand, relax.Var):
        return operand
    return relax.Var(strip_label(operand.name), operand.ty)


class _Graphs:
    """The values and readers of the variables of all functions of a graph."""

    def __init__(self, module: tvm.IRModule) -> None:
        functions = [function for _, function in graph_functions(module)]
        bound = [binding for function in functions for binding in list_bindings(function)]
        self.values = {b.var: b.value for b in bound if isinstance(b, relax.VarBinding)}
        self._readers: dict[relax.Var, list[relax.Var | None]] = defaultdict(list)
        for binding in bound:
            for variable in relax.analysis.free_vars(binding.value):
                self._readers[variable].append(binding.var)
        for function in functions:
            for variable in relax.analysis.free_vars(function.body.body):
                self._readers[variable].append(None)

    def pattern(self, variable: relax.Var) -> tuple[relax.Var, _Pattern] | None:
        """Match attention that ends with a matmul; return its result's variable and the match."""
        call = self._find_call(variable, "relax.matmul")
        softmax = None if call is None else self._find_unshared_call(call.args[0], SOFTMAX)
        shape = read_static_shape(variable)
        if call is None or softmax is None or shape is None:
            return None
        scores = self._match_scores(softmax.args[0])
        if scores is None or int(softmax.attrs.axis) not in {-1, len(shape) - 1}:
            return None
        last, result = variable, tuple(range(len(shape)))
        (reader, *other_readers) = self._readers[variable] or [None]
        transpose = (
            None
            if other_readers or reader is None
            else self._find_call(reader, "relax.permute_dims")
        )
        if reader is not None and transpose is not None:
            last, result = reader, read_permutation(transpose)
        attention = self._whole(scores, call.args[1], result)
        return None if attention is None else (last, attention)

    def _match_scores(self, value: relax.Expr) -> "_Scores | None":
        """Match the computation of scores, from the last step to the first."""
        mask, scale = None, 1.0
        while 1 / _LARGEST < abs(scale) < _LARGEST:
            if (call := self._find_unshared_call(value, "relax.matmul")) is not None:
                return _Scores(call, scale, mask)
            if (call := self._find_unshared_call(value, *_SCALED)) is not None:
                scale *= _read_scale(call.args[1]) ** _SCALED[call.op.name]
                value = call.args[0]
                continue
            call = self._find_unshared_call(value, "relax.add")
            if call is None or mask is not None or scale != 1:  # or a mask that is scaled
                return None
            value, mask = self._split_mask(call)
        return None

    def _split_mask(self, call: relax.Call) -> tuple[relax.Expr, relax.Expr]:
        """Return (scores, mask) of an addition: scores are the operand with a matmul."""
        left, right = call.args
        shapes = read_static_shape(left), read_static_shape(call)
        return (left, right) if shapes[0] == shapes[1] and self._is_product(left) else (right, left)

    def _whole(
        self, scores: "_Scores", value: relax.Expr, result: tuple[int, ...]
    ) -> _Pattern | None:
        rank = len(result)
        query, query_order = self._read(scores.product.args[0])
        key, key_order = self._read(scores.product.args[1])
        values, value_order = self._read(value)
        if not len(query_order) == len(key_order) == len(value_order) == rank > 2:  # noqa: PLR2004 - a matrix has 2
            return None
        swap = {rank - 1: rank - 2, rank - 2: rank - 1}  # the second operand of a matmul
        form = AttentionForm(
            query=query_order, key=tuple(swap.get(axis, axis) for axis in key_order),
            value=value_order, result=result, scale=scores.scale, masked=scores.mask is not None,
        )  # fmt: skip
        operands = (query, key, values, *([] if scores.mask is None else [scores.mask]))
        return _Pattern(form, operands) if _can_fuse(scores, value, operands) else None

    def _read(self, value: relax.Expr) -> tuple[relax.Expr, tuple[int, ...]]:
        """Return the source of an operand, and the order of its axes there."""
        call = self._find_call(value, "relax.permute_dims")
        if call is None:
            return value, tuple(range(len(read_static_shape(value) or ())))
        axes = read_permutation(call)
        return call.args[0], tuple(axes.index(axis) for axis in range(len(axes)))

    def _find_call(self, value: relax.Expr, *names: str) -> relax.Call | None:
        """Return the call of one of some ops that defines a variable, or None."""
        call = self.values.get(value) if isinstance(value, relax.Var) else None
        if not isinstance(call, relax.Call) or not isinstance(call.op, tvm.ir.Op):
            return None
        return call if call.op.name in names else None

    def _find_unshared_call(self, value: relax.Expr, *names: str) -> relax.Call | None:
        """Return the same, if the variable has only one reader."""
        readers = self._readers.get(value, ()) if isinstance(value, relax.Var) else ()
        return self._find_call(value, *names) if len(readers) == 1 else None

    def _is_product(self, value: relax.Expr) -> bool:
        """Tell whether a value is a matmul, scaled or not."""
        return self._find_unshared_call(value, "relax.matmul", *_SCALED) is not None


@dataclass(frozen=True, slots=True)
class _Scores:
    """A matmul of queries and keys, with its scale and mask before the softmax."""

    product: relax.Call
    scale: float
    mask: relax.Expr | None


def _can_fuse(scores: _Scores, value: relax.Expr, operands: tuple[relax.Expr, ...]) -> bool:
    """Tell whether outer axes are equal, all sizes large enough, and all tensors float32."""
    query, keys = (read_static_shape(side) for side in scores.product.args)
    values, scores_shape = read_static_shape(value), read_static_shape(scores.product)
    if query is None or keys is None or values is None or scores_shape is None:
        return False
    alike = query[:-2] == keys[:-2] == values[:-2] and 0 not in query
    large = min(*query[-2:], keys[-1], values[-1]) >= _FEWEST
    single = all(str(operand.ty.dtype) == "float32" for operand in operands)
    return alike and large and single and _can_broadcast_mask(scores.mask, scores_shape)


def _can_broadcast_mask(mask: relax.Expr | None, scores_shape: tuple[int, ...]) -> bool:
    """Tell whether there is no mask, or one that broadcasts to the shape of the scores."""
    if mask is None:
        return True
    shape = read_static_shape(mask)
    return (
        shape is not None
        and len(shape) == len(scores_shape)
        and all(part in {1, extent} for part, extent in zip(shape, scores_shape, strict=True))
    )


def _read_scale(value: relax.Expr) -> float:
    """Return the value of a scalar constant, or `_LARGEST` for any other value or zero."""
    if not isinstance(value, tvm.ir.GenericConst) or value.value.numpy().size != 1:
        return _LARGEST
    return float(value.value.numpy().reshape(())) or _LARGEST
