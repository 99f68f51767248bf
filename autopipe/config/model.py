"""Section `model`: the model to compile."""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

from autopipe.config.dimension import (
    EXTENT,
    LARGEST,
    Dimension,
    DimensionName,
    evaluate_size,
    parse_terms,
)
from autopipe.config.frozen import Frozen
from autopipe.config.names import FormatName

DType = Literal[
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64",
]  # fmt: skip
"""Element types of inputs."""

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]

_OPEN_SIZE: Final = re.compile(EXTENT)


def _check_size(value: object) -> object:
    """Refuse values that are neither a size nor a name; a union would report them twice."""
    if isinstance(value, str) and _OPEN_SIZE.fullmatch(value):
        return " + ".join(map(str, parse_terms(value)))
    if type(value) is int and 1 <= value <= LARGEST:
        return value
    raise PydanticCustomError(
        "size",
        "Input should be a whole number from 1 to {largest}, or the name of a dimension",
        {"largest": LARGEST},
    )


SizeOrName = Annotated[
    int | str,
    BeforeValidator(_check_size),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": LARGEST},
                {"type": "string", "pattern": EXTENT},
            ]
        }
    ),
]
"""The size of a dimension, or its name in `model.dimensions`; a sum where it follows from others,
such as `past + new`."""


OPEN: Final = "?"
"""Stands in a shape for an unknown size; such a file does not run."""

OPEN_SHAPE: Final = "open_shape"
"""Pydantic's type of the error for `OPEN`."""


def _check_no_open_axes(shape: object) -> object:
    sizes = shape if isinstance(shape, list | tuple) else ()
    if OPEN not in sizes:
        return shape
    axes = " and ".join(f"dimension {axis}" for axis, size in enumerate(sizes) if size == OPEN)
    example = ",".join("SIZE" if size == OPEN else str(size) for size in sizes)
    raise PydanticCustomError(
        OPEN_SHAPE, "[{known}] leaves {axes} open", {"axes": axes, "known": example}
    )


class Input(Frozen, frozen=True):
    """The shape and type of one model input."""

    shape: Annotated[tuple[SizeOrName, ...], BeforeValidator(_check_no_open_axes)]
    """Size of each dimension, or the name of one of `model.dimensions`, or a sum such as
    `past + new` where it follows from sizes of other inputs; replaces symbolic dimensions of the
    model. `autopipe init` writes "?" for an unknown size: a file with one is refused until it is a
    number or a name."""
    dtype: DType | None = None
    """Element type; only to assert that of the model."""
    value: (
        bool
        | Annotated[int, Field(ge=-(2**63), lt=2**63)]
        | Annotated[float, Field(allow_inf_nan=False)]
        | None
    ) = None
    """A constant for this input, such as a sample rate; it is then no input any more, and branches
    of an ONNX model that depend on it are chosen at compile time."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape in numbers; -1 for a symbolic size."""
        return tuple(size if isinstance(size, int) else -1 for size in self.shape)

    def at(self, sizes: Mapping[str, int]) -> "Input":
        """Substitute these sizes for the names in the shape."""
        shape = tuple(
            size if isinstance(size, int) else evaluate_size(size, sizes) for size in self.shape
        )
        return self.model_copy(update={"shape": shape})


class Weights(Frozen, frozen=True):
    """Seeded synthetic weights, for models that ship without real ones."""

    synthesize: Literal["he_normal"] = "he_normal"
    """How weights are drawn: `he_normal` keeps activations of order one through a deep network."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the draw; the same seed gives the same weights on every machine."""


class Model(Frozen, frozen=True):
    """The source of the model."""

    format: FormatName = "onnx"
    """File format of the model: `onnx`, or `tvmscript` for a Python file with one Relax module or
    PrimFunc, which is parsed and never run."""
    path: Annotated[str, StringConstraints(min_length=1)]
    """A file, relative to this YAML file, or `pkg:package/path` for one inside an installed
    Python package."""
    sha256: Digest | None = None
    """Required digest of the model file."""
    inputs: dict[str, Input] = {}
    """Shapes of the inputs by name; needed where the model has symbolic dimensions."""
    dimensions: dict[DimensionName, Dimension] = {}
    """Dynamic dimensions by their names in shapes. One package accepts every size in their
    ranges."""
    found: dict[str, Annotated[int, Field(ge=1, lt=LARGEST)]] = {}
    """Likely data-dependent sizes by the name of the node, such as the number of boxes after
    NonMaxSuppression. Later kernels are tuned for this size, and correct for any. The default is
    100, or the upper bound if that is smaller."""
    weights: Weights | None = None
    """Replace the model's weights by seeded synthetic ones; omit for a real model. A TVMScript
    source has no weights of its own."""
