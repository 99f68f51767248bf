"""Gradients of TE computes, by reverse accumulation over their graph.

`te.gradient`, which TVM 0.27 has no more, made Jacobians and simplified them. Here each compute
hands its adjoint on to what it reads: element x[a] gets the sum, over all iterations that read it,
of the adjoint times the derivative. Which iterations these are is said by `inverse`, and the
derivative by `partial`.

For `y[i] = sum(w[i, k] * x[k], k)` with the adjoint g of y: `dx[a] = sum(g[i] * w[i, a], i)` and
`dw[a, b] = g[a] * x[b]`. Both are computes like those that a user declares, and are scheduled so.
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
"""What tells a tensor: its operation, and which of its outputs it is."""

_ADJOINT: Final = "_adjoint"


def gradient(
    output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor | None = None
) -> list[te.Tensor]:
    """Return the gradient of an output by each of some tensors that it is computed from.

    `head` is the gradient by `output`, of its shape; None is ones, so that of the sum of all its
    elements. Each result has the shape of its tensor. Raises ModelError for what has no gradient
    here: reducers other than sum, max and min, indices that come from data, scans and externs.
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
    """The computes between some tensors and an output."""

    def __init__(self, output: te.Tensor, inputs: Sequence[te.Tensor]) -> None:
        self._output = output
        self._inputs = inputs
        self._ends = {_make_key(tensor) for tensor in inputs}
        self._reach: dict[_Key, bool] = {}
        self._order: list[te.Tensor] = []
        self._visit_tensor(output)

    def adjoints(self, head: te.Tensor) -> list[te.Tensor]:
        """Return the adjoint of each input, from that of the output."""
        known: dict[_Key, list[te.Tensor]] = {_make_key(self._output): [head]}
        done: dict[_Key, te.Tensor] = {}
        for tensor in reversed(self._order):
            key = _make_key(tensor)
            if key not in known:
                continue
            done[key] = _add_terms(known[key], tensor)
            if isinstance(tensor.op, te.PlaceholderOp):
                continue
            for source, term in _list_terms(tensor, done[key], self._needs_gradient):
                known.setdefault(_make_key(source), []).append(term)
        return [
            done[_make_key(t)] if _make_key(t) in done else _make_zeros(t) for t in self._inputs
        ]

    def _needs_gradient(self, tensor: te.Tensor) -> bool:
        return self._reach[_make_key(tensor)]

    def _visit_tensor(self, tensor: te.Tensor) -> bool:
        """Put a tensor behind all that it is computed from; tell whether an input is among them."""
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
        found = terms[0](*at)
        for term in terms[1:]:
            found += term(*at)
        return found

    return te.compute(like.shape, total, name=f"{like.op.name}{_ADJOINT}")


def _make_zeros(like: te.Tensor) -> te.Tensor:
    zero = tirx.const(0, str(like.dtype))
    return te.compute(like.shape, lambda *_: zero, name=f"{like.op.name}_zero")


def _list_terms(
    tensor: te.Tensor, adjoint: te.Tensor, wanted: Wanted
) -> list[tuple[te.Tensor, te.Tensor]]:
    """Return what a compute hands on: each tensor that it reads, and a term of its adjoint."""
    op = tensor.op
    if not isinstance(op, te.ComputeOp):
        raise ModelError(f"a gradient through {op.name} is not known here: it is no compute")
    body = op.body[int(tensor.value_index)]
    seed = adjoint(*(axis.var for axis in op.axis))
    if isinstance(body, tirx.Reduce):
        body, seed = _differentiate_reduction(tensor, body, adjoint)
    reads = _merge_partials(list(list_partials(body, seed, wanted)))
    return [(read.tensor, _build_term(read, tensor, adjoint)) for read in reads]


def _differentiate_reduction(
    tensor: te.Tensor, body: tirx.Reduce, adjoint: te.Tensor
) -> tuple[Expr, Expr]:
    """Return what is reduced, and the seed that each element of it gets."""
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
    """Return what each of the largest elements of a window gets: those that are equal share."""
    source = body.source[int(body.value_index)]
    fresh = {axis.var: te.reduce_axis(axis.dom, name=axis.var.name) for axis in body.axis}
    names = {var: axis.var for var, axis in fresh.items()}
    one, zero = (tirx.const(value, str(tensor.dtype)) for value in (1, 0))
    name = tensor.op.name

    def count(*at: Var) -> Expr:
        own = {axis.var: here for axis, here in zip(tensor.op.axis, at, strict=True)}
        here = substitute_variables(source, {**names, **own})
        found = tirx.Select(tirx.EQ(here, tensor(*at)), one, zero)
        condition = substitute_variables(body.condition, {**names, **own})
        return te.sum(guard_value(found, [condition], zero), axis=list(fresh.values()))

    counts = te.compute(tensor.shape, count, name=f"{name}_equal")
    return te.compute(tensor.shape, lambda *at: adjoint(*at) / counts(*at), name=f"{name}_share")


def _merge_partials(found: Sequence[Partial]) -> list[Partial]:
    """Return each element that is read once, with all that it gets."""
    joined: list[Partial] = []
    for read in found:
        for at, other in enumerate(joined):
            if _make_key(read.tensor) == _make_key(other.tensor) and _has_same_indices(
                read.indices, other.indices
            ):
                joined[at] = other._replace(derivative=other.derivative + read.derivative)
                break
        else:
            joined.append(read)
    return joined


def _has_same_indices(one: Sequence[Expr], other: Sequence[Expr]) -> bool:
    if any(map(has_reads, (*one, *other))):  # which TVM can not compare
        return False
    return all(map(tvm_ffi.structural_equal, one, other))


def _build_term(read: Partial, tensor: te.Tensor, adjoint: te.Tensor) -> te.Tensor:
    """Return what an access hands on to the tensor that it reads, as a compute of its shape."""
    axes = [axis.var for axis in tensor.op.axis]
    loops = [Loop.of(axis) for axis in (*tensor.op.axis, *tensor.op.reduce_axis)]
    shape = read.tensor.shape
    place = [Loop(Var(f"at{n}", read_dtype(size)), 0, int(size)) for n, size in enumerate(shape)]
    solution = solve_indices(
        read.indices, loops, place, _find_shiftable_axes(adjoint, read.derivative, axes)
    )
    derivative = _pad_adjoint(read.derivative, adjoint, axes, solution.shifts)
    zero = tirx.const(0, str(read.tensor.dtype))
    known = Analyzer()
    for loop in (*place, *solution.free):
        known.bind(loop.var, loop.range)
    value = substitute_variables(derivative, solution.values)
    value = guard_value(
        rewrite_expression(value, lambda part: _simplify_choice(part, known)), solution.guards, zero
    )

    def compute(*at: Var) -> Expr:
        free = {loop.var: te.reduce_axis(loop.range, name=loop.var.name) for loop in solution.free}
        here = dict(zip((loop.var for loop in place), at, strict=True))
        names = {**here, **{var: axis.var for var, axis in free.items()}}
        found = substitute_variables(value, names)
        return te.sum(found, axis=list(free.values())) if free else found

    return te.compute(shape, compute, name=f"{read.tensor.op.name}_by_{tensor.op.name}")


def _simplify_choice(part: Expr, known: Analyzer) -> Expr | None:
    """Return what a choice always chooses; None for another expression, or if it depends."""
    if isinstance(part, tirx.Select):
        choice = [part.condition, part.true_value]
    elif isinstance(part, Call) and str(part.op.name).endswith(".if_then_else"):
        choice = list(part.args[:2])
    else:
        return None
    condition, chosen = choice
    if has_reads(condition) or not known.can_prove(condition):
        return None
    return rewrite_expression(chosen, lambda inner: _simplify_choice(inner, known))


def _find_shiftable_axes(adjoint: te.Tensor, derivative: Expr, axes: Sequence[Var]) -> list[Var]:
    """Return the axes that nothing depends on but where the adjoint is read."""
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
    """Return a derivative that reads the adjoint with zeros around it, as far as its reads go.

    So the gradient of a convolution by its image is a convolution, of sums without guards.
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
        there = [var + least for var, least in zip(at, low, strict=True)]
        guards = [
            tirx.all(there[at] >= loop.first, there[at] < loop.first + loop.count)
            for at, loop in inside
        ]
        return guard_value(adjoint(*there), guards, zero)

    padded = te.compute(shape, value, name=f"{adjoint.op.name}_padded")
    here = padded(*(var - least for var, least in zip(axes, low, strict=True)))
    return rewrite_expression(derivative, lambda part: here if _is_read_of(part, adjoint) else None)
