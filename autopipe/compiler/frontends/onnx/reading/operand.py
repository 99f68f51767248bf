"""What is known of an input of a node before the model runs."""

from dataclasses import dataclass

from onnx import TypeProto

from autopipe.compiler.frontends.onnx.reading.tensors import Array
from autopipe.errors import ModelError


@dataclass(frozen=True, slots=True)
class Operand:
    """The type of an input, and its values if the graph holds them."""

    type: TypeProto
    """A TypeProto, empty where nothing is known and for an input that is left out."""
    values: Array | None

    def shape(self, what: str) -> list[int]:
        """Return the sizes, which have to be known; raises `ModelError` with `what` otherwise."""
        dims = self.type.tensor_type.shape.dim
        if not self.type.tensor_type.HasField("shape") or not all(
            dim.HasField("dim_value") for dim in dims
        ):
            raise ModelError(f"{what} has a shape that is not known before the model runs")
        return [dim.dim_value for dim in dims]

    def number(self, what: str) -> int:
        """Return a whole number that has to be constant; raises `ModelError` with `what`."""
        if self.values is None or self.values.size != 1:
            raise ModelError(f"{what} is not constant")
        return int(self.values.item())
