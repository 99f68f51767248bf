"""Checks of sample input files at planning time."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from autopipe.artifacts.signature import Port
from autopipe.config.dimension import Dimension, list_dimension_names
from autopipe.config.model import Input
from autopipe.config.pipeline import Pipeline
from autopipe.errors import ConfigError


def check_sample_file(path: Path, field: str, pipeline: Pipeline) -> Path:
    """Check a file of inputs against the inputs of the pipeline; return its absolute path.

    Raises ConfigError, with the field that names the file.
    """
    from autopipe.compiler.library import samples

    ports = [
        _to_port(name, given)
        for name, given in pipeline.model.inputs.items()
        if given.dtype is not None and given.value is None
    ]
    dimensions = _select_dimensions(pipeline, ports)
    ports = [port for port in ports if _list_dimension_names(port) <= dimensions.keys()]
    try:
        samples.check_file(path, ports, dimensions)
    except ConfigError as error:
        raise ConfigError(f"{field}: {error}") from None
    return path.absolute()


def _to_port(name: str, model_input: Input) -> Port:
    names = tuple(size if isinstance(size, str) else "" for size in model_input.shape)
    return Port(
        name=name,
        shape=model_input.sizes,
        dtype=model_input.dtype,
        dimensions=names if any(names) else (),
    )


def _list_dimension_names(port: Port) -> set[str]:
    return {name for extent in port.dimensions if extent for name in list_dimension_names(extent)}


def _select_dimensions(pipeline: Pipeline, ports: Sequence[Port]) -> Mapping[str, Dimension]:
    """Return the dynamic dimensions of these inputs; other inputs may have further ones."""
    names = {name for port in ports for name in port.dimensions}
    return {name: one for name, one in pipeline.model.dimensions.items() if name in names}
