"""`model.json`: the description of a model by the stage *import*."""

from typing import ClassVar

from autopipe.artifacts.document import ArtifactDocument
from autopipe.artifacts.numbers import Count
from autopipe.artifacts.promises import OutputPromises
from autopipe.artifacts.signature import Port
from autopipe.config.dimension import Dimension, DimensionName
from autopipe.config.model import Digest


class ImportedModel(ArtifactDocument, frozen=True):
    """An imported model, besides its module and its weights."""

    FILE: ClassVar[str] = "model.json"

    name: str
    """The model's own name, or that of its file."""
    inputs: tuple[Port, ...]
    """Inputs, in call order."""
    outputs: tuple[Port, ...]
    """Outputs, in the order they are returned."""
    weights: tuple[str, ...]
    """Names of the weights, in call order after the inputs."""
    source_sha256: Digest
    """Digest of the model file as it was read."""
    synthesized: bool
    """Whether the weights were synthesized instead of read."""
    opset: int | None
    """Operator set version of the model; null if it is not ONNX."""
    selects: dict[str, Count]
    """Inputs whose values are indices into a table, with the number of its entries."""
    params: Count
    """Number of elements of all weights."""
    dimensions: dict[DimensionName, Dimension] = {}
    """Dynamic dimensions."""
    promises: OutputPromises
    """Properties of the outputs that a build has to reproduce."""

    @property
    def arguments(self) -> int:
        """Return the number of arguments of `main` before the weights: dynamic sizes come last."""
        return len(self.inputs) + bool(self.dimensions)
