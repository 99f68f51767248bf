"""Types of values, by element type and sizes, and the operands of a node, with constant values."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from onnx import GraphProto, TypeProto, ValueInfoProto

from autopipe.compiler.frontends.onnx.reading.tensors import Array
from autopipe.errors import ModelError


@dataclass(frozen=True)
class ValueType:
    """The inferred type of a value."""

    element: int
    """ONNX's element type, 0 if unknown."""
    sizes: tuple[int | str | None, ...] | None
    """A number or a name for each size, None for one that is unknown; None for an unknown rank."""

    @property
    def rank(self) -> int | None:
        """The number of axes, None if unknown."""
        return None if self.sizes is None else len(self.sizes)

    @cached_property
    def shape(self) -> tuple[int, ...] | None:
        """The sizes, None if one is not a number."""
        if self.sizes is None:
            return None
        numbers = tuple([size for size in self.sizes if isinstance(size, int)])
        return numbers if len(numbers) == len(self.sizes) else None


UNKNOWN: Final = ValueType(0, None)


def read_type(kind: TypeProto) -> ValueType:
    """Return the type of a tensor as far as it is known, `UNKNOWN` for other types."""
    return _parse_type(kind.SerializeToString())


def read_types(graph: GraphProto) -> dict[str, ValueType]:
    """Return the noted types of a graph's values and initializers, without inner graphs."""
    types = {tensor.name: ValueType(tensor.data_type, tuple(tensor.dims))
             for tensor in graph.initializer}  # fmt: skip
    return read_value_types((*graph.input, *graph.value_info, *graph.output)) | types


def read_value_types(values: Iterable[ValueInfoProto]) -> dict[str, ValueType]:
    """Return the types of values by name."""
    return {value.name: read_type(value.type) for value in values}


@lru_cache(1 << 12)
def _parse_type(data: bytes) -> ValueType:
    """Parse a serialized type.

    A graph has few types: reading the fields of each value takes three times as long.
    """
    kind = TypeProto.FromString(data)
    tensor = kind.tensor_type
    if not kind.HasField("tensor_type"):
        return UNKNOWN
    if not tensor.HasField("shape"):
        return ValueType(tensor.elem_type, None)
    sizes = [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
        for dim in tensor.shape.dim
    ]
    return ValueType(tensor.elem_type, tuple(sizes))


class UnknownOperand(ModelError):  # noqa: N818 - says what is wrong
    """The shape or the value of an operand is not known, perhaps until constants are folded."""


@dataclass(frozen=True, slots=True)
class Operand:
    """The type of an input, and its values if it is constant."""

    type: TypeProto
    """The type, empty if it is unknown and for an absent input."""
    values: Array | None

    def shape(self, label: str) -> list[int]:
        """Return the static sizes; raises `UnknownOperand` with `label` if they are unknown."""
        shape = read_type(self.type).shape
        if shape is None:
            raise UnknownOperand(f"{label} has a shape that is not known before the model runs")
        return list(shape)

    def rank(self, label: str) -> int:
        """Return the number of axes; raises `UnknownOperand` with `label` if it is unknown."""
        rank = read_type(self.type).rank
        if rank is None:
            raise UnknownOperand(f"{label} has a rank that is not known before the model runs")
        return rank

    def size(self, axis: int, label: str) -> int:
        """Return a static size; raises `UnknownOperand` with `label` if it is unknown."""
        sizes = read_type(self.type).sizes
        size = None if sizes is None else sizes[axis]
        if not isinstance(size, int):
            raise UnknownOperand(f"{label} has a size that is not known before the model runs")
        return size

    def number(self, label: str) -> int:
        """Return a constant integer; raises `UnknownOperand` with `label` if it is computed."""
        if self.values is None or self.values.size != 1:
            raise UnknownOperand(f"{label} is not constant")
        return int(self.values.item())


def check_count(number: int, label: str) -> None:
    """Raise `ModelError` with `label` for a number below 1."""
    if number < 1:
        raise ModelError(f"{label} is {number}; it has to be 1 or more")
