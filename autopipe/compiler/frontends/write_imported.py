"""Write an imported model as the artifact of the stage *import*."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from autopipe.artifacts.model import ImportedModel
from autopipe.artifacts.model_nodes import ModelNodes
from autopipe.artifacts.signature import Port
from autopipe.compiler import module_io
from autopipe.compiler.frontends.imported import Imported, Value
from autopipe.config.dimension import Dimension


def write_imported(model: Imported, dimensions: Mapping[str, Dimension], out: Path) -> int:
    """Write the module, the weights, and the model for reference runtimes.

    Returns the number of elements of all weights.
    """
    module_io.save_module(model.module, out / "module.json")
    module_io.save_weights(model.weights, out / "weights.safetensors")
    if model.write_reference is not None:
        model.write_reference(out)
    ModelNodes(nodes=model.nodes).write(out)
    params = sum(values.size for values in model.weights.values())
    ImportedModel(
        name=model.name, inputs=_to_ports(model.inputs), outputs=_to_ports(model.outputs),
        weights=tuple(model.weights), source_sha256=model.source_sha256,
        synthesized=model.synthesized, opset=model.opset, selects=dict(model.selects),
        params=params, dimensions=dict(dimensions), promises=model.promises,
    ).write(out)  # fmt: skip
    return params


def _to_ports(values: Iterable[Value]) -> tuple[Port, ...]:
    return tuple(Port.model_validate(value.model_dump()) for value in values)
