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
    """Its name in the model."""
    dimensions: tuple[str, ...] = ()
    """The name of each dynamic dimension; "" for a static or derived one."""
    ranges: tuple[tuple[int, int] | None, ...] = ()
    """The bounds, both inclusive, of an output's unnamed dynamic dimensions, None if unknown."""


@dataclass(frozen=True)
class Imported:
    """A model in Relax, and the facts of its source for later stages."""

    name: str
    """The model's own name, or that of its file."""
    module: Any
    """IRModule with one function `main`: the inputs, then the weights, in order."""
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    weights: "Mapping[str, np.ndarray[Any, Any]]"
    """Weights by name, in the order of `main`."""
    source_sha256: str
    """SHA-256 of the model file."""
    synthesized: bool
    """Whether the weights were synthesized instead of read."""
    warnings: tuple[str, ...]
    """Warnings for the user, a line each."""
    opset: int | None = None
    """Operator set version of the model; None if it is not ONNX."""
    selects: Mapping[str, int] = field(default_factory=dict)
    """Inputs with indices into a table, and the number of its entries."""
    promises: OutputPromises = field(default_factory=OutputPromises)
    """The numeric promises of the outputs."""
    nodes: tuple[ModelNode, ...] = ()
    """Nodes of the model's file in order; their indices label the graph. Empty if not ONNX."""
    write_reference: Callable[[Path], None] | None = None
    """Writes `reference.onnx` and `reference.weights` into a folder; None if it is not ONNX."""
