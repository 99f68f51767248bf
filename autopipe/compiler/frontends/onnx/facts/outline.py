"""The outline of a model for a new pipeline file."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autopipe.compiler.frontends.imported import Value
from autopipe.compiler.frontends.onnx.facts.hints import SizeHints, find_size_hints
from autopipe.compiler.frontends.onnx.facts.synthesize import has_constant_kernels
from autopipe.compiler.frontends.onnx.reading import gate, source, tensors
from autopipe.config.model import Input
from autopipe.errors import ConfigError, ModelError

_LAYERS: Final = frozenset({
    "Conv", "ConvTranspose", "ConvInteger", "QLinearConv",
    "Gemm", "MatMul", "MatMulInteger", "QLinearMatMul",
    "LSTM", "GRU", "RNN", "DynamicQuantizeLSTM",
})  # fmt: skip
"""The operators that dominate the time of most models, and are tuned."""


@dataclass(frozen=True)
class ModelOutline:
    """The facts of a model that a new pipeline file depends on."""

    inputs: tuple[Value, ...]
    """The inputs; unbound dynamic dimensions are 1."""
    convolutions: frozenset[int]
    """Ranks of the data of convolutions."""
    layers: int
    """Number of distinct convolutions, matrix products and recurrent layers."""
    constant_weights: bool
    """Whether every kernel is filled with a single number."""
    hints: SizeHints
    """Hints on dynamic dimensions."""


def read_declared_shapes(path: Path) -> dict[str, tuple[int | str | None, ...] | None]:
    """Return the declared shape of each input; None for unknown rank.

    Raises ModelError that begins with the path.
    """
    try:
        return gate.read_declared_shapes(source.read_model_file(path))
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def read_outline(path: Path, inputs: Mapping[str, Input] | None) -> ModelOutline:
    """Read a model through the gate, with inputs bound to shapes; with None they are not bound.

    Raises ModelError that begins with the path, and ConfigError if `inputs` do not match.
    """
    try:
        return _read_vetted(path, inputs)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def find_refusal(path: Path, inputs: Mapping[str, Input]) -> str | None:
    """Return the reason why a model cannot be called with these shapes, or None if it can."""
    try:
        vetted_model = gate.admit_model(source.read_model_file(path), path, inputs)
        gate.check_sizes(vetted_model)
    except (ConfigError, ModelError) as error:
        return str(error)
    empty = next(
        (name for name, shape in vetted_model.shapes.items() if min(shape, default=1) <= 0), ""
    )
    return f"'{empty}' has no elements" if empty else None


def _read_vetted(path: Path, inputs: Mapping[str, Input] | None) -> ModelOutline:
    data = source.read_model_file(path)
    vetted_model = (
        gate.sketch_model(data, path) if inputs is None else gate.admit_model(data, path, inputs)
    )
    graph = vetted_model.model.graph
    weights = {
        name: tensors.read_array(tensor, path) for name, tensor in vetted_model.weights.items()
    }
    nodes = tensors.list_nodes(graph)
    kernels = (node.input[1] for node in nodes if node.op_type in ("Conv", "ConvTranspose"))
    return ModelOutline(
        inputs=vetted_model.inputs,
        convolutions=frozenset(len(vetted_model.shapes.get(name, ())) for name in kernels),
        layers=len(set(_list_layers(vetted_model))),
        constant_weights=has_constant_kernels(graph, weights, vetted_model.shapes),
        hints=find_size_hints(graph, vetted_model.shapes),
    )


def _list_layers(vetted_model: gate.Vetted) -> Iterator[object]:
    """Yield the identity of each layer: operator, attributes, shapes."""
    for node in tensors.list_nodes(vetted_model.model.graph):
        if node.op_type in _LAYERS:
            attributes = sorted(field.SerializeToString() for field in node.attribute)
            shapes = [vetted_model.shapes.get(name) for name in node.input]
            yield node.op_type, tuple(attributes), tuple(shapes)
