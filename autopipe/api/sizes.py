"""Resolve the sizes of a model's inputs from its declared shapes and from options."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from autopipe.config.dimension import NAME, Sizes, parse_terms
from autopipe.config.model import OPEN
from autopipe.config.problem import format_value
from autopipe.config.suggestion import suggest_name
from autopipe.errors import ConfigError

Declared = tuple[int | str | None, ...]
"""A shape as a model declares it: sizes, names of dynamic dimensions, None for unnamed ones. In
the shape of an option, None leaves a dimension to the model."""

_BATCH: Final = re.compile(r"n|b|bs|.*batch.*", re.IGNORECASE | re.DOTALL)
_SHORT: Final = 2
"""Letters of a name that means a batch only on the first axis."""
_SIZE: Final = "[1-9][0-9]{0,9}"
_MEANINGLESS: Final = re.compile(r"unk.*|.*dim.*|.*dyn.*|[a-z]?_?\d+", re.IGNORECASE)
"""Names that exporters generate."""


@dataclass(frozen=True, slots=True)
class InputSizes:
    """The shape of one input, with its unknown sizes."""

    shape: tuple[int | None, ...]
    """None for an unknown size."""
    open: Mapping[int, str] = field(default_factory=dict)
    """The model's name of each dimension without a size; empty where it has no name."""
    assumed: Mapping[int, str] = field(default_factory=dict)
    """The same of dimensions that are assumed to be a batch of 1."""
    names: Mapping[int, str] = field(default_factory=dict)
    """The pipeline file's name of each dynamic dimension."""

    def at(self, sizes: Sizes) -> "InputSizes":
        """Substitute numbers for some names: `past + new` with one new is `past + 1`."""
        left = {axis: _substitute_sizes(name, sizes) for axis, name in self.names.items()}
        names = {axis: name for axis, name in left.items() if isinstance(name, str)}
        shape = tuple(left.get(axis, size) for axis, size in enumerate(self.shape))
        return replace(
            self,
            shape=tuple(size if isinstance(size, int) else None for size in shape),
            names=names,
        )


def parse_shapes(texts: Sequence[str], names: Sequence[str]) -> dict[str, Declared]:
    """Parse shapes such as `NAME=1,3,640,640`; the only input of a model needs no name.

    `x=1,3,48,?` leaves the last size to the model, and `x=1,3,48,width` names it. Raises
    ConfigError.
    """
    shapes_by_name: dict[str, Declared] = {}
    for text in texts:
        name, sizes = _split_shape_option(text, names)
        if name not in names:
            hint = suggest_name(name, names, f"it has {_format_names(names)}")
            raise ConfigError(
                f"--shape {format_value(text)}: the model has no input of this name{hint}"
            )
        if name in shapes_by_name:
            raise ConfigError(
                f"--shape {format_value(text)}: the shape of this input is given twice"
            )
        shapes_by_name[name] = _parse_sizes(text, sizes)
    return shapes_by_name


def resolve_sizes(
    declared: Mapping[str, Declared | None], shapes: Mapping[str, Declared]
) -> dict[str, InputSizes]:
    """Resolve the sizes of each input; a size for a named dimension holds for all inputs.

    None is the shape of an input of unknown rank. Raises ConfigError for a shape that does not fit
    the model.
    """
    sizes_by_name: dict[str, int] = {}
    for name, shape in shapes.items():
        for axis, (declared_size, size) in enumerate(_pair_sizes(name, declared[name], shape)):
            if not isinstance(size, int):
                _refuse_name(name, axis, declared_size, size)
                continue
            known_size = (
                sizes_by_name.setdefault(declared_size, size)
                if isinstance(declared_size, str)
                else declared_size
            )
            if known_size not in {None, size}:
                dimension_text = (
                    f" ({format_value(declared_size)})" if isinstance(declared_size, str) else ""
                )
                raise ConfigError(
                    f"--shape {format_value(name)}: dimension {axis}{dimension_text} is {size}, "
                    f"and {known_size} in the model or in another --shape"
                )
    return {
        name: _build_input_sizes(
            name, _merge_shapes(shape, shapes[name]) if name in shapes else shape, sizes_by_name
        )
        for name, shape in declared.items()
    }


def _substitute_sizes(extent: str, sizes: Sizes) -> str | int:
    """Substitute numbers for names in a symbolic size; return a number where no name remains."""
    parts = [
        sizes.get(part, part) if isinstance(part, str) else part for part in parse_terms(extent)
    ]
    constant = sum(part for part in parts if isinstance(part, int))
    names = [part for part in parts if isinstance(part, str)]
    return " + ".join([*names, str(constant)] if constant else names) if names else constant


def _merge_shapes(declared: Declared | None, shape: Declared) -> Declared:
    """Fill the unspecified sizes of an option's shape from the model's."""
    pairs = zip(declared or (None,) * len(shape), shape, strict=True)
    return tuple(declared_size if size is None else size for declared_size, size in pairs)


def _refuse_name(name: str, axis: int, declared_size: int | str | None, size: str | None) -> None:
    """Raise ConfigError for a name where the model has a number."""
    if isinstance(declared_size, int) and size is not None:
        raise ConfigError(
            f"--shape {format_value(name)}: dimension {axis} is {declared_size} in the model, "
            f"and not `{size}`"
        )


def _build_input_sizes(
    name: str, declared: Declared | None, sizes_by_name: Mapping[str, int]
) -> InputSizes:
    if declared is None:
        raise ConfigError(
            f"input '{format_value(name)}' has no shape in the model, not even a number of "
            "dimensions; "
            f"give it: --shape {format_value(name)}=1,3,640,640"
        )
    shape: list[int | None] = []
    left, assumed = {}, {}
    for axis, declared_size in enumerate(declared):
        size = sizes_by_name.get(declared_size) if isinstance(declared_size, str) else declared_size
        if size is None and _is_batch(declared_size, axis, len(declared)):
            assumed[axis] = str(declared_size or "")
            size = 1
        elif size is None:
            left[axis] = str(declared_size or "")
        shape.append(size)
    return InputSizes(tuple(shape), left, assumed)


def is_made_up(name: str) -> bool:
    """Whether a dimension has no name, or one that an exporter generated."""
    return not name or bool(_MEANINGLESS.fullmatch(name))


def _is_batch(declared_size: int | str | None, axis: int, rank: int) -> bool:
    name = str(declared_size or "")
    if _BATCH.fullmatch(name) and (axis == 0 or len(name) > _SHORT):
        return True
    return axis == 0 and rank > 1 and is_made_up(name)


def _pair_sizes(
    name: str, declared: Declared | None, shape: Declared
) -> Iterator[tuple[int | str | None, int | str | None]]:
    if declared is not None and len(declared) != len(shape):
        raise ConfigError(
            f"--shape {format_value(name)}: {len(shape)} sizes are given, the model has "
            f"{len(declared)}"
        )
    yield from zip(declared or (None,) * len(shape), shape, strict=True)


def _split_shape_option(text: str, names: Sequence[str]) -> tuple[str, str]:
    input_name = next((name for name in names if text.startswith(f"{name}=")), None)
    if input_name is not None:
        return input_name, text.removeprefix(f"{input_name}=")
    name, equals, sizes = text.rpartition("=")
    if equals:
        return name, sizes
    if len(names) == 1:
        return names[0], text
    raise ConfigError(
        f"--shape {format_value(text)}: write NAME={format_value(text)}; the inputs are "
        f"{_format_names(names)}"
    )


def _parse_sizes(text: str, sizes: str) -> Declared:
    words = [word.strip() for word in sizes.strip().removeprefix("[").removesuffix("]").split(",")]
    if all(re.fullmatch(rf"{_SIZE}|\{OPEN}|{NAME[1:-1]}", word, re.ASCII) for word in words):
        return tuple(
            None if word == OPEN else int(word) if word[0].isdigit() else word for word in words
        )
    raise ConfigError(
        f"--shape {format_value(text)}: write the sizes as whole numbers: NAME=1,3,640,640; "
        f"{OPEN} or a name leaves one open"
    )


def _format_names(names: Sequence[str]) -> str:
    return ", ".join(f"`{format_value(name)}`" for name in names)
