"""An imported model: the result of every frontend."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autopipe.artifacts.model_nodes import ModelNode
from autopipe.artifacts.promises import OutputPromises
from autopipe.tasks.tensor import Tensor

if TYPE_CHECKING:
    import numpy as np


class Value(Tensor, frozen=True):
    """An input or output of the model."""

    name: str
    """The model's own name of it."""
    dimensions: tuple[str, ...] = ()
    """The name of each dimension with an open size; "" where it is fixed or follows otherwise."""
    ranges: tuple[tuple[int, int] | None, ...] = ()
    """Of an output, the smallest and the largest of each open size without a name, where known."""


@dataclass(frozen=True)
class Imported:
    """A model in Relax, and all that later stages know about its source."""

    name: str
    """The model's own name, or that of its file."""
    module: Any
    """IRModule with one function `main`: the inputs, then the weights, in order."""
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    weights: "Mapping[str, np.ndarray[Any, Any]]"
    """Weights by name, in the order of `main`."""
    source_sha256: str
    """Digest of the model file as it was read."""
    synthesized: bool
    """Whether the weights were drawn instead of read."""
    warnings: tuple[str, ...]
    """What the user should know of the model, a line each."""
    opset: int | None = None
    """Operator set version of the model; None if it is not ONNX."""
    selects: Mapping[str, int] = field(default_factory=dict)
    """Inputs whose values are indices into a table, with the number of its entries."""
    promises: OutputPromises = field(default_factory=OutputPromises)
    """What a build has to reproduce of the outputs."""
    nodes: tuple[ModelNode, ...] = ()
    """Nodes of the model's file, in its order, by whose positions the graph is labelled; none if it
    is not ONNX."""
    write_reference: Callable[[Path], None] | None = None
    """Writes `reference.onnx` and `reference.weights` into a folder; None if it is not ONNX."""
