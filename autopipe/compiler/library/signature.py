"""How a library is called: what is known of it without loading it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

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

    @classmethod
    def of(cls, document: Mapping[str, object]) -> Self:
        """Return the signature part of a `library.json` or a manifest."""
        given = cls.model_fields.keys() & document.keys()
        return cls.model_validate({name: document[name] for name in given})

    @classmethod
    def read(cls, library: Path) -> Self:
        """Return the signature of what the stage *build* made."""
        return cls.of(json.loads((library / "library.json").read_text(encoding="utf-8")))
