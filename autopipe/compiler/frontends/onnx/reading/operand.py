"""The type and constant value of a node's input."""

from dataclasses import dataclass

from onnx import TypeProto

from autopipe.compiler.frontends.onnx.reading.tensors import Array
from autopipe.compiler.frontends.onnx.reading.value_types import read_type
from autopipe.errors import ModelError


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
