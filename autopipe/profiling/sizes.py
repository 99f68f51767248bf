"""Inputs of a profile: zeros, at the largest or at the requested sizes."""

from collections.abc import Sequence

import numpy as np

from autopipe.artifacts.signature import Port, Signature
from autopipe.config.problem import format_value
from autopipe.errors import ConfigError


def make_zero_inputs(signature: Signature, sizes: Sequence[str]) -> dict[str, np.ndarray]:
    """Return zeros for each input; `sizes` are texts such as `input:0=4` for dynamic dimensions.

    Raises ConfigError for a size that the model does not take.
    """
    chosen_sizes = {name: one.last for name, one in signature.dimensions.items()}
    for text in sizes:
        name, value = _read_size(signature.inputs, text)
        if reason := signature.dimensions[name].refusal(value):
            raise ConfigError(f"--size {format_value(text)}: {name} {reason}")
        chosen_sizes[name] = value
    return {port.name: np.zeros(port.shape, port.dtype) for port in signature.at(chosen_sizes)}


def _read_size(ports: Sequence[Port], text: str) -> tuple[str, int]:
    """Parse `INPUT[:AXIS]=N` to the name of a dynamic dimension and its size."""
    place, _, number = text.rpartition("=")
    name, colon, axis = place.rpartition(":")
    port = next((one for one in ports if one.name == (name if colon else place)), None)
    if port is None and colon:
        port = next((one for one in ports if one.name == place), None)
        axis = ""
    try:
        at = int(axis) if colon and axis else 0
        if port is not None and port.dimensions[at].isidentifier():
            return port.dimensions[at], int(number)
    except (ValueError, IndexError):
        pass
    raise ConfigError(f"--size {format_value(text)}: write INPUT[:AXIS]=N of a dynamic dimension")
