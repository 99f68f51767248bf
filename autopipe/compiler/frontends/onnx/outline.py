"""What a first pipeline file has to know of a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autopipe.compiler.frontends.imported import Value
from autopipe.compiler.frontends.onnx import gate, source, tensors
from autopipe.compiler.frontends.onnx.synthesize import all_constant
from autopipe.errors import ModelError


@dataclass(frozen=True)
class ModelOutline:
    """A model in few words."""

    declared: Mapping[str, tuple[int | str | None, ...]]
    """Shape of each input: sizes, names of symbols, None for what has no name."""
    inputs: tuple[Value, ...]
    """The inputs with every open dimension taken as 1."""
    convolutions: frozenset[int]
    """Ranks of the data that convolutions work on."""
    constant_weights: bool
    """Whether every kernel holds one number only."""


def outline(path: Path) -> ModelOutline:
    """Read a model through the gate; raises ModelError, with the path in front."""
    try:
        return _outline(path)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def _outline(path: Path) -> ModelOutline:
    data = source.read(path)
    declared = gate.declared(data)
    vetted = gate.sketch(data, path)
    stored = {name: tensors.array(tensor, path) for name, tensor in vetted.weights.items()}
    nodes = (node for inner in tensors.graphs(vetted.model.graph) for node in inner.node)
    kernels = (node.input[1] for node in nodes if node.op_type == "Conv")
    return ModelOutline(
        declared={value.name: declared[value.name] for value in vetted.inputs},
        inputs=vetted.inputs,
        convolutions=frozenset(len(vetted.shapes.get(name, ())) for name in kernels),
        constant_weights=all_constant(vetted.model.graph, stored, vetted.shapes),
    )
