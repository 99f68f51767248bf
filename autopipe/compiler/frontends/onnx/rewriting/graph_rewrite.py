"""The state of a model between the passes over its ONNX graph."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import onnx
from onnx import ModelProto

from autopipe.compiler.frontends.onnx.reading.tensors import Array

_LARGE: Final = 2**26
"""Minimum bytes of a detached weight: it is never folded, and a protobuf is limited to 2 GiB."""


@dataclass(slots=True)
class GraphRewrite:
    """The state of a model between passes."""

    source: ModelProto
    """The original model; no pass changes it."""
    weights: Mapping[str, Array]
    """Its weights by name."""
    model: ModelProto = field(default_factory=onnx.ModelProto)
    kept_weights: dict[str, Array] = field(default_factory=dict)
    """Weights of the rewritten model, which are inputs of its graph."""
    is_expanded: bool = False
    """Whether operators were expanded into function bodies."""

    @property
    def large(self) -> dict[str, Array]:
        """Return the weights that are too large for passes to read."""
        return {name: array for name, array in self.weights.items() if array.nbytes >= _LARGE}

    def print_graph(self) -> str:
        """Return the graph in ONNX's text form, without the values of weights."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model if self.model.graph.node else self.source)
        del model.graph.initializer[:]
        return str(onnx.printer.to_text(model))


@dataclass(frozen=True, slots=True)
class OnnxPass:
    """A pass over a model, and its reason."""

    apply: Callable[[GraphRewrite], None]
    reason: str
    rewrites: frozenset[str] = frozenset()
    """Operators that it rewrites: it is skipped if the graph has none of them. Empty for all."""

    @property
    def name(self) -> str:
        """Return the name of the function."""
        return self.apply.__name__.removeprefix("_")

    def describe_condition(self) -> str:
        """Format the condition for running it, for the reference page; empty if always."""
        operators = ", ".join(f"`{name}`" for name in sorted(self.rewrites))
        return operators and f"the graph has {operators}"
