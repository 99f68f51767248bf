"""Looks into TIR expressions, and makes new ones and loops for them."""

import math
from collections.abc import Callable, Iterator, Sequence

import tvm
import tvm_ffi
from tvm.ir import TensorLoad
from tvm.tirx.script import builder as T  # noqa: N812 - TVM's name for it
from tvm_ffi import structural_mutate, structural_walk

Values = Sequence[tuple[tvm.ir.Var, tvm.ir.Expr]]
"""What variables stand for; they have no hash."""


def loads_of(expression: tvm.ir.Expr) -> list[TensorLoad]:
    """Return the loads in an expression, in order."""
    found: list[TensorLoad] = []
    structural_walk(expression, (TensorLoad, found.append))
    return found


def occurrences(expression: tvm.ir.Expr, var: tvm.ir.Var) -> int:
    """Return how often a variable occurs in an expression."""
    found: list[tvm.ir.Var] = []
    structural_walk(expression, (tvm.ir.Var, found.append))
    return sum(var.same_as(other) for other in found)


def substitute(
    expression: tvm.ir.Expr,
    values: Values,
    load: Callable[[TensorLoad], tvm.ir.Expr | None] = lambda _: None,
) -> tvm.ir.Expr:
    """Return an expression with values for variables, and for those loads that have one."""

    def variable(var: tvm.ir.Var, _: object) -> tvm.ir.Expr:
        return next((value for other, value in values if other.same_as(var)), var)

    def read(found: TensorLoad, mutator: tvm_ffi.StructuralMutator) -> tvm.ir.Expr:
        value = load(found)
        return mutator.default_mutate(found) if value is None else value

    return structural_mutate(expression, [(TensorLoad, read), (tvm.ir.Var, variable)])


def unfold(extents: Sequence[int], index: tvm.ir.Expr) -> list[tvm.ir.Expr]:
    """Return the index along each of some axes that are gone along as if they were one."""
    inner = [math.prod(extents[i + 1 :]) for i in range(len(extents))]
    parts = [index // each for each in inner]
    return [
        part if i == 0 else part % extent
        for i, (part, extent) in enumerate(zip(parts, extents, strict=True))
    ]


def whole(buffer: tvm.ir.Var) -> tvm.ir.TensorRegion:
    """Return the region of a buffer that is all of it."""
    return buffer[tuple(slice(0, extent) for extent in buffer.ty.shape)]


def elements(
    count: int, width: int, number: Callable[[int], tvm.ir.Expr], *, unroll: bool = False
) -> Iterator[tvm.ir.Expr]:
    """Write loops over elements, a vector at a time, the rest in shorter ones; yield the index.

    `number` makes constants of the type that indices have.
    """
    done, loop = 0, T.unroll if unroll else T.serial
    while done < count:
        vectors = (count - done) // width
        if vectors:
            with (
                loop(number(0), number(vectors)) as vector,
                T.vectorized(number(0), number(width)) as lane,
            ):
                yield done + vector * width + lane
        done += vectors * width
        width //= 2
