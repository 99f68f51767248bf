"""Converters of control flow for TVM's importer of ONNX.

TVM handles If itself, in a way of its own: both branches are computed beforehand, as far as their
converters emit anything, and nothing of such a model is fused. It has no Loop and no Scan. So nodes
of these kinds get other names before TVM sees them, and names and converters are ours.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from autopipe.compiler.frontends.onnx.control import branches, loops
from autopipe.compiler.frontends.onnx.control.functions import BodyFunctions, ControlSite
from autopipe.compiler.frontends.onnx.tensors import Proto, graphs

# ruff: noqa: ANN401  TVM has no types

_NAMES: Final = {"If": "autopipe_If", "Loop": "autopipe_Loop"}


def hide(model: Proto) -> None:
    """Give the nodes of control flow the names that `converters` has."""
    for graph in graphs(model.graph):
        for node in graph.node:
            if node.op_type in _NAMES:
                node.op_type = _NAMES[node.op_type]
                node.name = node.name or next(filter(None, node.output), "")


def converters() -> Mapping[str, Any]:
    """Return the converters for one model."""
    functions = BodyFunctions()
    return {
        _NAMES["If"]: _Converter(functions, branches.convert),
        _NAMES["Loop"]: _Converter(functions, loops.convert),
    }


@dataclass(frozen=True, slots=True)
class _Converter:
    """What TVM's importer takes for one of its classes of converters."""

    functions: BodyFunctions
    function: Callable[..., Any]

    def get_converter(self, opset: int) -> Callable[..., Any]:
        """Return the function that makes Relax of a node."""

        def convert(builder: Any, inputs: Any, attrs: Mapping[str, Any], params: Any) -> Any:
            self.functions.within(builder)
            site = ControlSite(builder, list(inputs), attrs, params[0], opset)
            return self.function(self.functions, site)

        return convert
