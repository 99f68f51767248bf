"""A model on its way through the passes over an ONNX graph."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import onnx
from onnx import ModelProto

from autopipe.compiler.frontends.onnx.reading.tensors import Array

_LARGE: Final = 2**26
"""Bytes of a weight that stays out: nothing folds into it, and a protobuf holds 2 GiB."""


@dataclass(slots=True)
class GraphRewrite:
    """A model on its way through the passes."""

    source: ModelProto
    """The model as it was read; no pass changes it."""
    weights: Mapping[str, Array]
    """Its weights by name."""
    model: ModelProto = field(default_factory=onnx.ModelProto)
    kept_weights: dict[str, Array] = field(default_factory=dict)
    """Weights of the rewritten model, which are inputs of its graph."""
    is_expanded: bool = False
    """Whether bodies took the place of operators."""

    @property
    def large(self) -> dict[str, Array]:
        """Return the weights that no pass looks at."""
        return {name: array for name, array in self.weights.items() if array.nbytes >= _LARGE}

    def print_graph(self) -> str:
        """Return the graph in ONNX's text form, without the values of weights."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model if self.model.graph.node else self.source)
        del model.graph.initializer[:]
        return str(onnx.printer.to_text(model))


@dataclass(frozen=True, slots=True)
class OnnxPass:
    """A pass over a model, and why it is run."""

    apply: Callable[[GraphRewrite], None]
    reason: str
    rewrites: frozenset[str] = frozenset()
    """Operators without any of which it would change nothing, so that it is skipped."""

    @property
    def name(self) -> str:
        """Return its name, which is that of its function."""
        return self.apply.__name__.removeprefix("_")

    def describe_condition(self) -> str:
        """Return when it is run, for the reference page; empty if always."""
        operators = ", ".join(f"`{name}`" for name in sorted(self.rewrites))
        return operators and f"the graph has {operators}"
