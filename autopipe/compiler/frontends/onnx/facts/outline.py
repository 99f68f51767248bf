"""What a first pipeline file has to know of a model."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autopipe.compiler.frontends.imported import Value
from autopipe.compiler.frontends.onnx.facts.hints import SizeHints, find_size_hints
from autopipe.compiler.frontends.onnx.facts.synthesize import has_constant_kernels
from autopipe.compiler.frontends.onnx.reading import gate, source, tensors, window_fit
from autopipe.config.model import Input
from autopipe.errors import ConfigError, ModelError

_LAYERS: Final = frozenset({
    "Conv", "ConvTranspose", "ConvInteger", "QLinearConv",
    "Gemm", "MatMul", "MatMulInteger", "QLinearMatMul",
    "LSTM", "GRU", "RNN", "DynamicQuantizeLSTM",
})  # fmt: skip
"""What takes the time of most models, and is tuned."""


@dataclass(frozen=True)
class ModelOutline:
    """A model in few words."""

    inputs: tuple[Value, ...]
    """The inputs; where shapes were left open, with every such dimension taken as 1."""
    convolutions: frozenset[int]
    """Ranks of the data that convolutions work on."""
    layers: int
    """How many different convolutions, matrix products and recurrent layers there are."""
    constant_weights: bool
    """Whether every kernel holds one number only."""
    hints: SizeHints
    """What the graph says of sizes that are open."""


def read_declared_shapes(path: Path) -> dict[str, tuple[int | str | None, ...] | None]:
    """Return the shape of each input as the model declares it; None for one of unknown rank.

    Raises ModelError, with the path in front.
    """
    try:
        return gate.read_declared_shapes(source.read_model_file(path))
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def read_outline(path: Path, inputs: Mapping[str, Input] | None) -> ModelOutline:
    """Read a model through the gate, its inputs bound to shapes; with None they stay open.

    Raises ModelError, with the path in front, and ConfigError where `inputs` do not fit.
    """
    try:
        return _read_vetted(path, inputs)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def find_refusal(path: Path, inputs: Mapping[str, Input]) -> str | None:
    """Return why a model can not be called with these shapes, or None if it can."""
    try:
        vetted = gate.admit_model(source.read_model_file(path), path, inputs)
        window_fit.check_sizes(vetted.model.graph, vetted.shapes)
    except (ConfigError, ModelError) as error:
        return str(error)
    empty = next((name for name, shape in vetted.shapes.items() if min(shape, default=1) <= 0), "")
    return f"'{empty}' has no elements" if empty else None


def _read_vetted(path: Path, inputs: Mapping[str, Input] | None) -> ModelOutline:
    data = source.read_model_file(path)
    vetted = (
        gate.sketch_model(data, path) if inputs is None else gate.admit_model(data, path, inputs)
    )
    graph = vetted.model.graph
    stored = {name: tensors.read_array(tensor, path) for name, tensor in vetted.weights.items()}
    nodes = (node for inner in tensors.list_graphs(graph) for node in inner.node)
    kernels = (node.input[1] for node in nodes if node.op_type in ("Conv", "ConvTranspose"))
    return ModelOutline(
        inputs=vetted.inputs,
        convolutions=frozenset(len(vetted.shapes.get(name, ())) for name in kernels),
        layers=len(set(_list_layers(vetted))),
        constant_weights=has_constant_kernels(graph, stored, vetted.shapes),
        hints=find_size_hints(graph, vetted.shapes),
    )


def _list_layers(vetted: gate.Vetted) -> Iterator[object]:
    """Yield what makes each layer the one it is: operator, attributes, shapes."""
    for graph in tensors.list_graphs(vetted.model.graph):
        for node in graph.node:
            if node.op_type in _LAYERS:
                attributes = sorted(field.SerializeToString() for field in node.attribute)
                shapes = [vetted.shapes.get(name) for name in node.input]
                yield node.op_type, tuple(attributes), tuple(shapes)
