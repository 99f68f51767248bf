"""Gradients of tensor expressions, by reverse accumulation over their graph.

`te.gradient`, which TVM 0.27 has no more, built Jacobians and simplified them. Here each compute op
propagates its adjoint to the tensors that it reads: element x[a] gets the sum, over all iterations
that read it, of the adjoint times the derivative. `inverse` finds these iterations, `partial` the
derivative.

For `y[i] = sum(w[i, k] * x[k], k)` with the adjoint g of y: `dx[a] = sum(g[i] * w[i, a], i)` and
`dw[a, b] = g[a] * x[b]`. Both are compute ops like those that a user declares.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import tvm_ffi
from tvm import te, tirx
from tvm.ir import Call, Expr, Var
from tvm.sym import Analyzer

from autopipe.compiler.gradient.expressions import (
    find_read_tensor,
    has_reads,
    has_variable,
    read_dtype,
    rewrite_expression,
    substitute_variables,
    walk_expression,
)
from autopipe.compiler.gradient.inverse import Loop, Shift, guard_value, solve_indices
from autopipe.compiler.gradient.partial import Partial, Wanted, list_partials
from autopipe.errors import ModelError

_Key: TypeAlias = "tuple[Any, int]"
"""Identity of a tensor: its operation, and the index of the output."""

_ADJOINT: Final = "_adjoint"


def gradient(
    output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor | None = None
) -> list[te.Tensor]:
    """Return the gradient of an output by each of `inputs`.

    `head` is the gradient by `output`, of its shape; None is ones, for the gradient of the sum of
    its elements. Each result has the shape of its tensor. Raises ModelError for reducers other than
    sum, max and min, data-dependent indices, scans and externs.
    """
    if not isinstance(inputs, Sequence):  # a TE tensor can be iterated over, without an end
        raise ModelError("a gradient is by a list of TE tensors: pass [tensor] for one")
    for tensor in (output, *inputs):
        if not isinstance(tensor, te.Tensor) or "float" not in str(tensor.dtype):
            raise ModelError("a gradient is of TE tensors of floats, by such tensors")
    if head is None:
        head = te.compute(output.shape, lambda *_: tirx.const(1, str(output.dtype)), name="head")
    if not isinstance(head, te.Tensor):
        raise ModelError("the gradient that is handed in (`head`) is a TE tensor")
    if [*map(int, head.shape)] != [*map(int, output.shape)] or str(head.dtype) != str(output.dtype):
        raise ModelError("the gradient that is handed in has the shape and type of the output")
    graph = _Graph(output, inputs)
    return graph.adjoints(head)


def _make_key(tensor: te.Tensor) -> _Key:
    return tensor.op, int(tensor.value_index)


class _Graph:
    """The compute ops between some input tensors and an output."""

    def __init__(self, output: te.Tensor, inputs: Sequence[te.Tensor]) -> None:
        self._output = output
        self._inputs = inputs
        self._ends = {_make_key(tensor) for tensor in inputs}
        self._reach: dict[_Key, bool] = {}
        self._order: list[te.Tensor] = []
        self._visit_tensor(output)

    def adjoints(self, head: te.Tensor) -> list[te.Tensor]:
        """Compute the adjoint of each input from that of the output."""
        terms: dict[_Key, list[te.Tensor]] = {_make_key(self._output): [head]}
        adjoints: dict[_Key, te.Tensor] = {}
        for tensor in reversed(self._order):
            key = _make_key(tensor)
            if key not in terms:
                continue
            adjoints[key] = _add_terms(terms[key], tensor)
            if isinstance(tensor.op, te.PlaceholderOp):
                continue
            for source, term in _list_terms(tensor, adjoints[key], self._needs_gradient):
                terms.setdefault(_make_key(source), []).append(term)
        return [
            adjoints[_make_key(t)] if _make_key(t) in adjoints else _make_zeros(t)
            for t in self._inputs
        ]

    def _needs_gradient(self, tensor: te.Tensor) -> bool:
        return self._reach[_make_key(tensor)]

    def _visit_tensor(self, tensor: te.Tensor) -> bool:
        """Order a tensor after its producers; tell whether it depends on an input."""
        key = _make_key(tensor)
        if key not in self._reach:
            self._reach[key] = False
            before = [self._visit_tensor(source) for source in tensor.op.input_tensors]
            self._reach[key] = key in self._ends or any(before)
            self._order.append(tensor)
        return self._reach[key]


def _add_terms(terms: Sequence[te.Tensor], like: te.Tensor) -> te.Tensor:
    if len(terms) == 1:
        return terms[0]

    def total(*at: Var) -> Expr:
        element = terms[0](*at)
        for term in terms[1:]:
            element += term(*at)
        return element

    return te.compute(like.shape, total, name=f"{like.op.name}{_ADJOINT}")


def _make_zeros(like: te.Tensor) -> te.Tensor:
    zero = tirx.const(0, str(like.dtype))
    return te.compute(like.shape, lambda *_: zero, name=f"{like.op.name}_zero")


def _list_terms(
    tensor: te.Tensor, adjoint: te.Tensor, is_wanted: Wanted
) -> list[tuple[te.Tensor, te.Tensor]]:
    """Return (tensor, term of its adjoint) of each tensor that a compute op reads."""
    op = tensor.op
    if not isinstance(op, te.ComputeOp):
        raise ModelError(f"a gradient through {op.name} is not known here: it is no compute")
    body = op.body[int(tensor.value_index)]
    seed = adjoint(*(axis.var for axis in op.axis))
    if isinstance(body, tirx.Reduce):
        body, seed = _differentiate_reduction(tensor, body, adjoint)
    reads = _merge_partials(list(list_partials(body, seed, is_wanted)))
    return [(read.tensor, _build_term(read, tensor, adjoint)) for read in reads]


def _differentiate_reduction(
    tensor: te.Tensor, body: tirx.Reduce, adjoint: te.Tensor
) -> tuple[Expr, Expr]:
    """Return the source of a reduction, and the seed of each of its elements."""
    at = int(body.value_index)
    source, axes = body.source[at], [axis.var for axis in tensor.op.axis]
    left, right, result = body.combiner.lhs[at], body.combiner.rhs[at], body.combiner.result[at]
    kinds = {
        kind for kind in (tirx.Add, tirx.Max, tirx.Min) if _is_combiner(result, kind, left, right)
    }
    if not kinds or len(body.init):
        raise ModelError(f"a gradient through the reducer of {tensor.op.name} is not known here")
    seed = adjoint(*axes)
    if kinds != {tirx.Add}:
        share = _share_adjoint(tensor, body, adjoint)
        zero = tirx.const(0, str(tensor.dtype))
        seed = tirx.Select(tirx.EQ(source, tensor(*axes)), share(*axes), zero)
    if not (isinstance(body.condition, tirx.IntImm) and int(body.condition)):
        seed = tirx.if_then_else(body.condition, seed, tirx.const(0, str(tensor.dtype)))
    return source, seed


def _is_combiner(
    result: Expr, kind: type[tirx.Add | tirx.Max | tirx.Min], left: Var, right: Var
) -> bool:
    if not isinstance(result, kind):
        return False
    return {result.a, result.b} == {left, right}


def _share_adjoint(tensor: te.Tensor, body: tirx.Reduce, adjoint: te.Tensor) -> te.Tensor:
    """Divide the adjoint of a maximum or minimum equally among the elements that attain it."""
    source = body.source[int(body.value_index)]
    fresh = {axis.var: te.reduce_axis(axis.dom, name=axis.var.name) for axis in body.axis}
    names = {var: axis.var for var, axis in fresh.items()}
    unit, zero = (tirx.const(value, str(tensor.dtype)) for value in (1, 0))
    name = tensor.op.name

    def count(*at: Var) -> Expr:
        spatial_axes = {axis.var: here for axis, here in zip(tensor.op.axis, at, strict=True)}
        element = substitute_variables(source, {**names, **spatial_axes})
        is_extremum = tirx.Select(tirx.EQ(element, tensor(*at)), unit, zero)
        condition = substitute_variables(body.condition, {**names, **spatial_axes})
        return te.sum(guard_value(is_extremum, [condition], zero), axis=list(fresh.values()))

    counts = te.compute(tensor.shape, count, name=f"{name}_equal")
    return te.compute(tensor.shape, lambda *at: adjoint(*at) / counts(*at), name=f"{name}_share")


def _merge_partials(partials: Sequence[Partial]) -> list[Partial]:
    """Add the partial derivatives of reads of the same element."""
    sums: list[Partial] = []
    for read in partials:
        for at, previous in enumerate(sums):
            if _make_key(read.tensor) == _make_key(previous.tensor) and _has_same_indices(
                read.indices, previous.indices
            ):
                sums[at] = previous._replace(derivative=previous.derivative + read.derivative)
                break
        else:
            sums.append(read)
    return sums


def _has_same_indices(left: Sequence[Expr], right: Sequence[Expr]) -> bool:
    if any(map(has_reads, (*left, *right))):  # which TVM cannot compare
        return False
    return all(map(tvm_ffi.structural_equal, left, right))


def _build_term(read: Partial, tensor: te.Tensor, adjoint: te.Tensor) -> te.Tensor:
    """Build the adjoint term of one read, as a compute op of the read tensor's shape."""
    axes = [axis.var for axis in tensor.op.axis]
    loops = [Loop.of(axis) for axis in (*tensor.op.axis, *tensor.op.reduce_axis)]
    shape = read.tensor.shape
    place = [Loop(Var(f"at{n}", read_dtype(size)), 0, int(size)) for n, size in enumerate(shape)]
    solution = solve_indices(
        read.indices, loops, place, _find_shiftable_axes(adjoint, read.derivative, axes)
    )
    derivative = _pad_adjoint(read.derivative, adjoint, axes, solution.shifts)
    zero = tirx.const(0, str(read.tensor.dtype))
    analyzer = Analyzer()
    for loop in (*place, *solution.free):
        analyzer.bind(loop.var, loop.range)
    value = substitute_variables(derivative, solution.values)
    value = guard_value(
        rewrite_expression(value, lambda part: _simplify_choice(part, analyzer)),
        solution.guards,
        zero,
    )

    def compute(*at: Var) -> Expr:
        free = {loop.var: te.reduce_axis(loop.range, name=loop.var.name) for loop in solution.free}
        place_axes = dict(zip((loop.var for loop in place), at, strict=True))
        names = {**place_axes, **{var: axis.var for var, axis in free.items()}}
        element = substitute_variables(value, names)
        return te.sum(element, axis=list(free.values())) if free else element

    return te.compute(shape, compute, name=f"{read.tensor.op.name}_by_{tensor.op.name}")


def _simplify_choice(part: Expr, analyzer: Analyzer) -> Expr | None:
    """Return the true value of a select with a provable condition, otherwise None."""
    if isinstance(part, tirx.Select):
        choice = [part.condition, part.true_value]
    elif isinstance(part, Call) and str(part.op.name).endswith(".if_then_else"):
        choice = list(part.args[:2])
    else:
        return None
    condition, value = choice
    if has_reads(condition) or not analyzer.can_prove(condition):
        return None
    return rewrite_expression(value, lambda inner: _simplify_choice(inner, analyzer))


def _find_shiftable_axes(adjoint: te.Tensor, derivative: Expr, axes: Sequence[Var]) -> list[Var]:
    """Return the axes that occur only in the indices of reads of the adjoint."""
    if not any(_is_read_of(part, adjoint) for part in walk_expression(derivative)):
        return []
    zero = tirx.const(0, str(adjoint.dtype))
    without = rewrite_expression(
        derivative, lambda part: zero if _is_read_of(part, adjoint) else None
    )
    return [var for var in axes if not has_variable(without, var)]


def _is_read_of(part: Expr, tensor: te.Tensor) -> bool:
    read = find_read_tensor(part)
    return read is not None and _make_key(read) == _make_key(tensor)


def _pad_adjoint(
    derivative: Expr, adjoint: te.Tensor, axes: Sequence[Var], shifts: Sequence[Shift]
) -> Expr:
    """Pad the adjoint with zeros, so that shifted reads of a derivative need no guards.

    So the gradient of a convolution by its input is a convolution without guards.
    """
    if not shifts:
        return derivative
    low = [0] * len(axes)
    shape = list(adjoint.shape)
    inside = []
    for shift in shifts:
        at = next(at for at, var in enumerate(axes) if var.same_as(shift.loop.var))
        low[at] = shift.low
        shape[at] = tirx.const(shift.high - shift.low + 1, read_dtype(shape[at]))
        inside.append((at, shift.loop))
    zero = tirx.const(0, str(adjoint.dtype))

    def value(*at: Var) -> Expr:
        position = [var + least for var, least in zip(at, low, strict=True)]
        guards = [
            tirx.all(position[at] >= loop.first, position[at] < loop.first + loop.count)
            for at, loop in inside
        ]
        return guard_value(adjoint(*position), guards, zero)

    padded_adjoint = te.compute(shape, value, name=f"{adjoint.op.name}_padded")
    shifted_read = padded_adjoint(*(var - least for var, least in zip(axes, low, strict=True)))
    return rewrite_expression(
        derivative, lambda part: shifted_read if _is_read_of(part, adjoint) else None
    )
