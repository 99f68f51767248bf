"""Files of real inputs, looked at when a pipeline is only planned."""

from pathlib import Path

from autopipe.artifacts.signature import Port
from autopipe.config import Pipeline
from autopipe.errors import ConfigError


def checked(path: Path, field: str, pipeline: Pipeline) -> Path:
    """Return the absolute path of a file of inputs, which fits what the pipeline says of the model.

    Raises ConfigError, with the field that names the file.
    """
    from autopipe.compiler.library import samples

    ports = [
        Port(name=name, shape=given.shape, dtype=given.dtype)
        for name, given in pipeline.model.inputs.items()
        if given.dtype is not None and given.value is None
    ]
    try:
        samples.check(path, ports)
    except ConfigError as error:
        raise ConfigError(f"{field}: {error}") from None
    return path.absolute()
