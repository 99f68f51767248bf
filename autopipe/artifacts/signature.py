"""How a library is called: what is known of it without loading it."""

from typing import Literal

from pydantic import PositiveInt

from autopipe.config.frozen import Frozen
from autopipe.config.model import DType
from autopipe.tasks.tensor import Tensor


class Port(Tensor, frozen=True):
    """An input or output of a model."""

    name: str
    """The model's own name for it."""
    dtype: DType
    """Element type; one that numpy has."""


class Signature(Frozen, frozen=True):
    """What a library must be called with, and what it gives back."""

    inputs: tuple[Port, ...]
    """Inputs, in call order."""
    outputs: tuple[Port, ...]
    """Outputs, in the order they are returned."""
    weights: tuple[str, ...]
    """Names of the weights, in call order after the inputs."""
    threads: PositiveInt
    """Threads the library was tuned for."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where its kernels run."""
