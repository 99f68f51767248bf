"""Integer expressions of dynamic dimensions, as `2 * height + 1`.

A model computes shapes by nodes: Shape, Gather, Mul, Concat, Reshape. As tensors they would hide
that two sizes are equal. So the elements of such tensors are recorded as expressions of the dynamic
dimensions.
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
"""Maximum number of recorded elements of a tensor, above any rank."""


@dataclass(frozen=True, slots=True)
class ExactPart:
    """An exact fraction: `number / over`."""

    number: Size
    over: int = 1


@dataclass(frozen=True, slots=True)
class FoundSize:
    """A data-dependent size, such as the number of selected boxes."""

    name: str
    """The name of its variable."""
    most: int


class Extents:
    """The dynamic dimensions of a model, and the recorded elements of its shape tensors."""

    def __init__(self, steps: Mapping[str, Expr], dimensions: Mapping[str, Dimension]) -> None:
        """Bind the variable of each dynamic dimension, which counts its multiples."""
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
        self._recorded: dict[Expr, Array] = {}

    def simple(self, number: Size) -> Size:
        """Simplify a number; returns a Python integer if it is constant."""
        if isinstance(number, int | np.integer):
            return int(number)
        result = self._analyzer.simplify(number)
        if (
            isinstance(result, tirx.Min | tirx.Max)
            and (is_less := self.truth(result.a <= result.b)) is not None
        ):
            result = result.a if is_less == isinstance(result, tirx.Min) else result.b
        return int(result) if isinstance(result, tirx.IntImm) else result

    def truth(self, condition: bool | Expr) -> bool | None:  # noqa: FBT001 - of integers
        """Whether a condition is true at every size (True), at none (False), or at some (None)."""
        if isinstance(condition, bool | np.bool_):
            return bool(condition)
        condition = condition.asobject() if hasattr(condition, "asobject") else condition
        if self._analyzer.can_prove(condition):
            return True
        if self._analyzer.can_prove(tirx.Not(condition)):
            return False
        return decide_condition(condition, self._ranges)

    def equal(self, first: Size, second: Size) -> bool:
        """Whether two numbers are equal at every size."""
        difference = self.simple(first - second)
        return isinstance(difference, int) and difference == 0

    def bounds(self, number: Size) -> tuple[int, int]:
        """Return the bounds of a number, both inclusive."""
        if isinstance(number, int):
            return number, number
        bound = self._analyzer.const_int_bound(number)
        return int(bound.min_value), int(bound.max_value)

    def bind_found(self, size: Expr, most: int) -> None:
        """Bind a data-dependent size to the range from 0 to `most`, inclusive."""
        self._analyzer.bind(size, ir.Range.from_min_extent(as_integer(0), as_integer(most + 1)))

    def of(self, value: Expr | None, params: Parameters) -> Array | None:
        """Return the elements of a tensor, None if they depend on data or are too many."""
        if value is None:
            return None
        if (numbers := self.kept(value)) is not None:
            return numbers
        values = operand_facts.read_values(value, params)
        if values is None or values.size > MOST:
            return None
        if values.dtype.kind == "f":
            return _make_parts(values)
        return values.astype(object) if values.dtype.kind in "iub" else None

    def kept(self, value: Expr | None) -> Array | None:
        """Return the elements of a tensor as recorded by `put` or `read`, else None."""
        return self._recorded.get(value) if isinstance(value, ir.Expr) else None

    def put(self, bb: BlockBuilder, numbers: Array, dtype: str) -> Expr:
        """Create a tensor of numbers, a constant if they are static, and record them."""
        tensor = _make_tensor(bb, numbers, dtype)
        self._recorded[tensor] = numbers
        return tensor

    def read(
        self,
        bb: BlockBuilder,
        value: Expr,
        node: str,
        most: int = LARGEST,
        is_allowed: Expr | None = None,
    ) -> Array:
        """Read the elements of a computed tensor as new data-dependent sizes.

        Sizes are clipped to 0 and `most`: ONNX leaves others undefined, and outputs have to be
        allocated. Sizes with a product above any memory are an error at run time, since int64 byte
        counts would overflow.

        Args:
            bb: TVM's block builder.
            value: An integer tensor [n] or scalar.
            node: The name that the sizes are derived from.
            most: The maximum of each size.
            is_allowed: A bool [1], false for an error; None tests the product of the sizes.
        """
        count = int(self.shape(value, node)[0]) if value.ty.ndim else 1
        flat = value if value.ty.ndim == 1 else bb.emit(relax.op.reshape(value, [1]))
        flat = flat if flat.ty.dtype == "int64" else bb.emit(relax.op.astype(flat, "int64"))
        for bound, limit in ((0, relax.op.maximum), (most, relax.op.minimum)):
            flat = bb.emit(limit(flat, relax.const(bound, "int64")))
        sizes: Array = np.empty(count, object)
        for at in range(count):
            name = f"{node}.{at}" if count > 1 else node
            sizes[at] = tirx.Var(f"{FOUND}{name}", "int64")
            self.found.append(FoundSize(str(sizes[at].name), most))
            self.bind_found(sizes[at], most)
        matched_sizes = list(sizes)
        if is_allowed is None and count > 1:
            is_allowed = _is_addressable(bb, flat)
        if is_allowed is not None:  # an additional size that must be 1
            truth = bb.emit(relax.op.astype(is_allowed, "int64"))
            flat, matched_sizes = (
                bb.emit(relax.op.concat([flat, truth], 0)),
                [*matched_sizes, as_integer(1)],
            )
        self._match_sizes(bb, flat, matched_sizes)
        self._recorded[value] = sizes if value.ty.ndim else sizes.reshape(())
        return self._recorded[value]

    def require(
        self,
        bb: BlockBuilder,
        limits: Sequence[tuple[Size, Size]],
        why: str,
        unless: Sequence[Size] = (),
    ) -> None:
        """Emit a run-time error if a size exceeds its limit; `limits` are pairs of both.

        Nothing is required if one of the sizes in `unless` is 0. Raises ModelError with `why` if a
        limit is exceeded at every size.
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
        """Match a tensor with sizes: new variables are bound, known sizes are checked."""
        # the op `tensor_to_shape` would create new variables, all named `x`
        kind = relax.ShapeType(ndim=len(sizes))
        shape_value = bb.emit(
            relax.op.call_pure_packed("vm.builtin.tensor_to_shape", numbers, ty_args=kind)
        )
        bb.match_cast(shape_value, relax.ShapeType(sizes))

    def shape(self, data: Expr, label: str) -> list[Size]:
        """Return the sizes of a tensor, integers if static.

        Raises ModelError with `label` if they depend on data.
        """
        sizes = operand_facts.read_sizes(data.ty)
        if sizes is None:
            raise ModelError(f"{label} has a shape that depends on what the model is given")
        return [self.simple(size) for size in sizes]

    def truncated(self, numbers: Array) -> Array | None:
        """Truncate exact fractions to integers."""
        return self.apply(lambda part: self.quotient(part.number, part.over), numbers)

    def quotient(self, dividend: Size, divisor: Size) -> Size | None:
        """Divide integers, rounding towards 0; None if the signs or a zero divisor are unknown."""
        if self.truth(divisor == 0) is not False:
            return None
        if isinstance(dividend, int) and isinstance(divisor, int):
            return abs(dividend) // abs(divisor) * (1 if (dividend < 0) == (divisor < 0) else -1)
        if not (self.truth(dividend >= 0) and self.truth(divisor > 0)):
            return None
        return self.simple(tirx.floordiv(dividend, divisor))

    def count_steps(self, span: Size, step: int) -> Size:
        """Return the number of positive steps that reach over a span; 0 for a negative one."""
        count = self.simple(tirx.floordiv(as_int64(span + (step - 1)), as_integer(step)))
        if self.truth(count >= 0):
            return count
        return self.simple(tirx.max(as_int64(count), as_integer(0)))

    def apply(self, function: Callable[..., object], *arrays: Array | None) -> Array | None:
        """Apply a function elementwise with broadcasting; None if an array or a result is None."""
        known_arrays = [array for array in arrays if array is not None]
        if len(known_arrays) < len(arrays):
            return None
        try:
            operands = np.broadcast_arrays(*known_arrays)
        except ValueError:
            return None
        results = np.empty(operands[0].shape, object)
        for index in np.ndindex(results.shape):
            results[index] = function(*(array[index] for array in operands))
            if results[index] is None:
                return None
        return results


def as_integer(number: int) -> tirx.IntImm:
    """Convert an integer to an int64 constant, the dtype of TVM's sizes."""
    return tirx.IntImm("int64", number)


def is_open(numbers: Iterable[object]) -> bool:
    """Whether a number depends on dynamic sizes."""
    return any(not isinstance(number, int) for number in numbers)


def list_dimensions(numbers: Iterable[object]) -> list[str]:
    """List the dynamic dimensions in expressions."""
    variables = {}
    for number in numbers:
        if isinstance(number, ir.Expr):
            for variable in tirx.analysis.undefined_vars(number):
                variables[str(variable.name)] = variable
    return list(variables)


def advise_on_sizes(numbers: Iterable[object]) -> str:
    """Return the advice for a dynamic size that is not supported."""
    return f"write a number for {' and '.join(list_dimensions(numbers)) or 'it'} in the pipeline"


def multiply_sizes(sizes: Sequence[Size]) -> Size:
    """Return the product of sizes."""
    return reduce(mul, sizes, 1)


def to_shape(sizes: Iterable[Size]) -> relax.ShapeExpr:
    """Convert sizes to a TVM shape."""
    return relax.ShapeExpr([as_integer(size) if isinstance(size, int) else size for size in sizes])


def _is_addressable(bb: BlockBuilder, sizes: Expr) -> Expr:
    """Emit the test, as a bool [1], that a tensor of computed sizes is addressable."""
    numbers = bb.emit(relax.op.astype(sizes, "float64"))  # no overflow of the product
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
    tensor = bb.emit(relax.op.shape_to_tensor(to_shape(flat)))
    tensor = bb.emit(relax.op.reshape(tensor, to_shape(numbers.shape)))
    if dtype != "int64":
        tensor = bb.emit(relax.op.astype(tensor, dtype))
    if over > 1:
        tensor = bb.emit(relax.op.divide(tensor, relax.const(over, dtype)))
    return tensor


def _make_parts(values: Array) -> Array | None:
    """Convert floats to exact fractions; None if one is not finite."""
    parts = np.empty(values.shape, object)
    for index in np.ndindex(values.shape):
        if not np.isfinite(values[index]):
            return None
        exact = Fraction(float(values[index]))
        parts[index] = ExactPart(exact.numerator, exact.denominator)
    return parts


def as_vector_array(numbers: Sequence[object]) -> Array:
    """Convert numbers to an object array [n]."""
    array: Array = np.empty(len(numbers), object)
    array[:] = numbers
    return array


def as_scalar_array(number: object) -> Array:
    """Convert a number to an object array of rank 0."""
    array: Array = np.empty((), object)
    array[()] = number
    return array


def as_int64(number: Size) -> Expr:
    """Convert a static or dynamic number to int64, the dtype of TVM's sizes."""
    return as_integer(number) if isinstance(number, int) else number
