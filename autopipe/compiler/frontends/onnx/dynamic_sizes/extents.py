"""Whole numbers that follow from open sizes, as `2 * height + 1` does.

A model computes shapes by nodes: Shape, Gather, Mul, Concat, Reshape. As tensors they would hide
that two sizes are the same one. So numbers that are known but for the open sizes are kept beside
the tensors that hold them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import mul
from typing import Final

import numpy as np
from tvm import ir, relax, tirx
from tvm.ir import Expr
from tvm.sym import Analyzer

from autopipe.artifacts.signature import MOST_ELEMENTS
from autopipe.compiler.dynamic_sizes.kernel_sizes import FOUND
from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    BlockBuilder,
    Parameters,
    Size,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.enumerate_sizes import decide_condition
from autopipe.compiler.frontends.onnx.reading.tensors import Array
from autopipe.config.dimension import LARGEST, Dimension
from autopipe.errors import ModelError

MOST: Final = 64
"""Numbers that are kept of one tensor; no tensor has as many axes."""


@dataclass(frozen=True, slots=True)
class ExactPart:
    """A number that need not be whole: `number / over`, exactly."""

    number: Size
    over: int = 1


@dataclass(frozen=True, slots=True)
class FoundSize:
    """A size that the model computes, such as the number of boxes that are left."""

    name: str
    """The name of its variable."""
    most: int


class Extents:
    """The open sizes of a model, and what is known of its tensors of numbers."""

    def __init__(self, steps: Mapping[str, Expr], dimensions: Mapping[str, Dimension]) -> None:
        """Take the variable of each dynamic dimension, which counts its multiples."""
        self.found: list[FoundSize] = []
        self._analyzer = Analyzer()
        self._ranges: dict[str, tuple[int, int]] = {}
        for name, step in steps.items():
            dimension = dimensions[name]
            first, last = (end // dimension.multiple for end in (dimension.first, dimension.last))
            self._analyzer.bind(
                step, ir.Range.from_min_extent(as_integer(first), as_integer(last - first + 1))
            )
            self._ranges[name] = (first, last)
        self._kept: dict[Expr, Array] = {}

    def simple(self, number: Size) -> Size:
        """Return a number in its shortest form, a Python integer where it is always the same."""
        if isinstance(number, int | np.integer):
            return int(number)
        found = self._analyzer.simplify(number)
        if (
            isinstance(found, tirx.Min | tirx.Max)
            and (less := self.truth(found.a <= found.b)) is not None
        ):
            found = found.a if less == isinstance(found, tirx.Min) else found.b
        return int(found) if isinstance(found, tirx.IntImm) else found

    def truth(self, condition: bool | Expr) -> bool | None:  # noqa: FBT001 - of integers
        """Whether a condition holds at every size (True), at none (False), or at some (None)."""
        if isinstance(condition, bool | np.bool_):
            return bool(condition)
        condition = condition.asobject() if hasattr(condition, "asobject") else condition
        if self._analyzer.can_prove(condition):
            return True
        if self._analyzer.can_prove(tirx.Not(condition)):
            return False
        return decide_condition(condition, self._ranges)

    def equal(self, one: Size, other: Size) -> bool:
        """Whether two numbers are the same at every size."""
        difference = self.simple(one - other)
        return isinstance(difference, int) and difference == 0

    def bounds(self, number: Size) -> tuple[int, int]:
        """Return the smallest and the largest value of a number."""
        if isinstance(number, int):
            return number, number
        found = self._analyzer.const_int_bound(number)
        return int(found.min_value), int(found.max_value)

    def bind_found(self, size: Expr, most: int) -> None:
        """Note that a size that the model computes is from 0 to its most."""
        self._analyzer.bind(size, ir.Range.from_min_extent(as_integer(0), as_integer(most + 1)))

    def of(self, value: Expr | None, params: Parameters) -> Array | None:
        """Return the numbers in a tensor, None if they depend on data or are many."""
        if value is None:
            return None
        if (kept := self.kept(value)) is not None:
            return kept
        values = operand_facts.read_values(value, params)
        if values is None or values.size > MOST:
            return None
        if values.dtype.kind == "f":
            return _make_parts(values)
        return values.astype(object) if values.dtype.kind in "iub" else None

    def kept(self, value: Expr | None) -> Array | None:
        """Return the numbers in a tensor that were recorded by `put` or `read`, else None."""
        return self._kept.get(value) if isinstance(value, ir.Expr) else None

    def put(self, bb: BlockBuilder, numbers: Array, dtype: str) -> Expr:
        """Return a tensor of numbers, a constant if they are fixed, and record them."""
        made = _make_tensor(bb, numbers, dtype)
        self._kept[made] = numbers
        return made

    def read(
        self,
        bb: BlockBuilder,
        value: Expr,
        node: str,
        most: int = LARGEST,
        allowed: Expr | None = None,
    ) -> Array:
        """Return the numbers in a tensor of values of the model, as new sizes.

        What is below 0 or above the most is cut: ONNX leaves open what it would mean, and memory
        has to be there for what comes out. Several sizes whose product no memory holds end a call
        with an error, since bytes that are counted in 64 bits would overflow.

        Args:
            bb: TVM's builder of blocks.
            value: A tensor [n] or a single number, of whole numbers.
            node: What the sizes are called after.
            most: The most that each may be.
            allowed: A bool [1]: whether a call goes on; None where the product of the sizes tells.
        """
        count = int(self.shape(value, node)[0]) if value.ty.ndim else 1
        flat = value if value.ty.ndim == 1 else bb.emit(relax.op.reshape(value, [1]))
        flat = flat if flat.ty.dtype == "int64" else bb.emit(relax.op.astype(flat, "int64"))
        for bound, cut in ((0, relax.op.maximum), (most, relax.op.minimum)):
            flat = bb.emit(cut(flat, relax.const(bound, "int64")))
        sizes: Array = np.empty(count, object)
        for at in range(count):
            name = f"{node}.{at}" if count > 1 else node
            sizes[at] = tirx.Var(f"{FOUND}{name}", "int64")
            self.found.append(FoundSize(str(sizes[at].name), most))
            self.bind_found(sizes[at], most)
        matched = list(sizes)
        if allowed is None and count > 1:
            allowed = _is_addressable(bb, flat)
        if allowed is not None:  # a last number that has to be 1
            truth = bb.emit(relax.op.astype(allowed, "int64"))
            flat, matched = bb.emit(relax.op.concat([flat, truth], 0)), [*matched, as_integer(1)]
        self._match_sizes(bb, flat, matched)
        self._kept[value] = sizes if value.ty.ndim else sizes.reshape(())
        return self._kept[value]

    def require(
        self,
        bb: BlockBuilder,
        limits: Sequence[tuple[Size, Size]],
        why: str,
        unless: Sequence[Size] = (),
    ) -> None:
        """Have a call end with an error where a size exceeds its limit: pairs of both.

        Nothing is required where one of the sizes in `unless` is 0. Raises ModelError with `why` if
        a limit is exceeded at every size.
        """
        if any(self.truth(size == 0) for size in unless):
            return
        free = [size for size in unless if self.truth(size == 0) is None]
        if any(self.truth(size <= limit) is False for size, limit in limits) and not free:
            raise ModelError(why)
        unclear = [pair for pair in limits if self.truth(pair[0] <= pair[1]) is not True]
        if not unclear:
            return
        excess = sum(tirx.max(as_int64(size - limit), as_integer(0)) for size, limit in unclear)
        for size in free:
            excess *= tirx.min(as_int64(size), as_integer(1))
        number = bb.emit(relax.op.shape_to_tensor(to_shape([excess])))
        self._match_sizes(bb, number, [as_integer(0)])

    def _match_sizes(self, bb: BlockBuilder, numbers: Expr, sizes: Sequence[Expr]) -> None:
        """Match a tensor of numbers with sizes: new ones, and those that it has to have."""
        # TVM would make new variables, all called `x`, of the op `tensor_to_shape`
        kind = relax.ShapeType(ndim=len(sizes))
        made = bb.emit(
            relax.op.call_pure_packed("vm.builtin.tensor_to_shape", numbers, ty_args=kind)
        )
        bb.match_cast(made, relax.ShapeType(sizes))

    def shape(self, data: Expr, what: str) -> list[Size]:
        """Return the sizes of a tensor, integers where they are fixed.

        Raises ModelError if they depend on data.
        """
        dims = getattr(getattr(data.ty, "shape", None), "values", None)
        if dims is None:
            raise ModelError(f"{what} has a shape that depends on what the model is given")
        return [self.simple(dim) for dim in dims]

    def truncated(self, numbers: Array) -> Array | None:
        """Return parts as whole numbers, what is behind the point left away."""
        return self.apply(lambda part: self.quotient(part.number, part.over), numbers)

    def quotient(self, one: Size, other: Size) -> Size | None:
        """Return a quotient of whole numbers, rounded towards 0; None where it is not clear."""
        if self.truth(other == 0) is not False:
            return None
        if isinstance(one, int) and isinstance(other, int):
            return abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)
        if not (self.truth(one >= 0) and self.truth(other > 0)):
            return None
        return self.simple(tirx.floordiv(one, other))

    def apply(self, function: Callable[..., object], *arrays: Array) -> Array | None:
        """Apply a function to numbers, one by one; None where it is None for one of them."""
        try:
            spread = np.broadcast_arrays(*arrays)
        except ValueError:
            return None
        made = np.empty(spread[0].shape, object)
        for index in np.ndindex(made.shape):
            made[index] = function(*(array[index] for array in spread))
            if made[index] is None:
                return None
        return made


def as_integer(number: int) -> tirx.IntImm:
    """Return a number as TVM's sizes are."""
    return tirx.IntImm("int64", number)


def is_open(numbers: Iterable[object]) -> bool:
    """Whether a number follows from open sizes."""
    return any(not isinstance(number, int) for number in numbers)


def list_dimensions(numbers: Iterable[object]) -> list[str]:
    """Return the dimensions that numbers follow from."""
    found = {}
    for number in numbers:
        if isinstance(number, ir.Expr):
            for variable in tirx.analysis.undefined_vars(number):
                found[str(variable.name)] = variable
    return list(found)


def advise_on_sizes(numbers: Iterable[object]) -> str:
    """Return what to do where open sizes can not be taken."""
    return f"write a number for {' and '.join(list_dimensions(numbers)) or 'it'} in the pipeline"


def multiply_sizes(sizes: Sequence[Size]) -> Size:
    """Return the product of sizes."""
    return reduce(mul, sizes, 1)


def to_shape(sizes: Iterable[Size]) -> relax.ShapeExpr:
    """Return sizes as a shape of TVM."""
    return relax.ShapeExpr([as_integer(size) if isinstance(size, int) else size for size in sizes])


def _is_addressable(bb: BlockBuilder, sizes: Expr) -> Expr:
    """Tell whether a tensor of computed sizes may fit in memory, as a bool [1]."""
    numbers = bb.emit(relax.op.astype(sizes, "float64"))  # whose product does not wrap
    product = bb.emit(relax.op.prod(numbers, keepdims=True))
    return bb.emit(relax.op.less_equal(product, relax.const(MOST_ELEMENTS, "float64")))


def _make_tensor(bb: BlockBuilder, numbers: Array, dtype: str) -> Expr:
    over = 1
    if numbers.size and isinstance(numbers.flat[0], ExactPart):
        over = max(part.over for part in numbers.flat)
        flat = [part.number * (over // part.over) for part in numbers.flat]
    else:
        flat = list(numbers.flat)
    if not is_open(flat):
        values = np.array(flat, object).astype("float64" if over > 1 else "int64")
        return relax.const((values / over if over > 1 else values).reshape(numbers.shape), dtype)
    made = bb.emit(relax.op.shape_to_tensor(to_shape(flat)))
    made = bb.emit(relax.op.reshape(made, to_shape(numbers.shape)))
    if dtype != "int64":
        made = bb.emit(relax.op.astype(made, dtype))
    if over > 1:
        made = bb.emit(relax.op.divide(made, relax.const(over, dtype)))
    return made


def _make_parts(values: Array) -> Array | None:
    """Return floats as parts, None where one is no number."""
    made = np.empty(values.shape, object)
    for index in np.ndindex(values.shape):
        if not np.isfinite(values[index]):
            return None
        exact = Fraction(float(values[index]))
        made[index] = ExactPart(exact.numerator, exact.denominator)
    return made


def as_vector_array(numbers: Sequence[object]) -> Array:
    """Return a list of numbers as an array [n] of objects."""
    made: Array = np.empty(len(numbers), object)
    made[:] = numbers
    return made


def as_scalar_array(number: object) -> Array:
    """Return a number as an array of one object and no axes."""
    made: Array = np.empty((), object)
    made[()] = number
    return made


def as_int64(number: Size) -> Expr:
    """Return a number as TVM's sizes are, whether it is fixed or not."""
    return as_integer(number) if isinstance(number, int) else number
