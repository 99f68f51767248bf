"""Section `model`: what is compiled."""

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

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
from autopipe.config.format_name import FormatName
from autopipe.config.frozen import Frozen, Sparse

DType = Literal[
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64",
]  # fmt: skip
"""Element types an input may have."""

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]

_OPEN_SIZE: Final = re.compile(EXTENT)


def _check_size(given: object) -> object:
    """Refuse in one line what is neither a size nor a name; a union would tell it twice."""
    if isinstance(given, str) and _OPEN_SIZE.fullmatch(given):
        return " + ".join(map(str, parse_terms(given)))
    if type(given) is int and 1 <= given <= LARGEST:
        return given
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
"""The size of a dimension, or what `model.dimensions` calls it; a sum where it follows from others,
such as `past + new`."""


OPEN: Final = "?"
"""Stands in a shape for a size that nobody gave yet; such a file does not run."""

OPEN_SHAPE: Final = "open_shape"
"""Pydantic's name for this."""


def _check_no_open_axes(shape: object) -> object:
    sizes = shape if isinstance(shape, list | tuple) else ()
    if OPEN not in sizes:
        return shape
    axes = " and ".join(f"dimension {axis}" for axis, size in enumerate(sizes) if size == OPEN)
    known = ",".join("SIZE" if size == OPEN else str(size) for size in sizes)
    raise PydanticCustomError(
        OPEN_SHAPE, "[{known}] leaves {axes} open", {"axes": axes, "known": known}
    )


class Input(Sparse, frozen=True):
    """The shape and type one model input is compiled for."""

    ADDED: ClassVar[frozenset[str]] = frozenset({"value"})

    shape: Annotated[tuple[SizeOrName, ...], BeforeValidator(_check_no_open_axes)]
    """Size of each dimension, or the name of one of `model.dimensions`, or a sum such as
    `past + new` where it follows from sizes of other inputs; replaces symbolic dimensions of the
    model. `autopipe init` writes "?" for a size that nobody gave: a file with one
    is refused until it is a number or a name."""
    dtype: DType | None = None
    """Element type; only to assert what the model already says."""
    value: (
        bool
        | Annotated[int, Field(ge=-(2**63), lt=2**63)]
        | Annotated[float, Field(allow_inf_nan=False)]
        | None
    ) = None
    """A number that this input always is, such as a sample rate; it is then no input any more, and
    branches of an ONNX model that hang on it are chosen now."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the shape in numbers; -1 where it has a name."""
        return tuple(size if isinstance(size, int) else -1 for size in self.shape)

    def at(self, sizes: Mapping[str, int]) -> "Input":
        """Return the same input with these sizes in the place of names."""
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


class Model(Sparse, frozen=True):
    """Where the model comes from."""

    ADDED: ClassVar[frozenset[str]] = frozenset({"dimensions", "found"})

    format: FormatName = "onnx"
    """File format of the model: `onnx`, or `tvmscript` for a Python file with one Relax module or
    PrimFunc, which is parsed and never run."""
    path: Annotated[str, StringConstraints(min_length=1)]
    """A file, relative to this YAML file, or `pkg:package/path` for one inside an installed
    Python package."""
    sha256: Digest | None = None
    """If given, the model file must have this digest."""
    inputs: dict[str, Input] = {}
    """Shapes of the inputs by name; needed where the model has symbolic dimensions."""
    dimensions: dict[DimensionName, Dimension] = {}
    """Sizes that are known only when the model runs, by the names that shapes call them. One
    package takes every size in their ranges."""
    found: dict[str, Annotated[int, Field(ge=1, lt=LARGEST)]] = {}
    """How many a node of the model probably finds, by the name of the node: boxes that are left of
    NonMaxSuppression, say. What works on them is tuned for so many, and is right for any number.
    Where nothing is said it is 100, or the most that there can be."""
    weights: Weights | None = None
    """Replace the model's weights by seeded synthetic ones; leave out for a real model. A TVMScript
    source has no weights of its own."""
