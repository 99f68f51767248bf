"""The sizes of a model's inputs: what the model says, what a user gives, and what is left open."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from autopipe.config.dimension import NAME, Sizes, parse_terms
from autopipe.config.model import OPEN
from autopipe.config.problem import format_value
from autopipe.config.suggestion import find_closest
from autopipe.errors import ConfigError

Declared = tuple[int | str | None, ...]
"""A shape as a model declares it: sizes, names of open dimensions, None for what has no name. Of a
shape that is given, None says nothing of a dimension."""

_BATCH: Final = re.compile(r"n|b|bs|.*batch.*", re.IGNORECASE | re.DOTALL)
_SHORT: Final = 2
"""Letters of a name that means a batch only where a batch is."""
_SIZE: Final = "[1-9][0-9]{0,9}"
_MEANINGLESS: Final = re.compile(r"unk.*|.*dim.*|.*dyn.*|[a-z]?_?\d+", re.IGNORECASE)
"""Names that exporters make up."""


@dataclass(frozen=True, slots=True)
class InputSizes:
    """The shape of one input, as far as it is known."""

    shape: tuple[int | None, ...]
    """None where nobody gave a size."""
    open: Mapping[int, str] = field(default_factory=dict)
    """What the model calls each dimension without a size; empty where it has no name."""
    assumed: Mapping[int, str] = field(default_factory=dict)
    """The same of dimensions that are taken for the batch, and assumed to be 1."""
    names: Mapping[int, str] = field(default_factory=dict)
    """What a pipeline file calls each size that stays open in a package."""

    def at(self, sizes: Sizes) -> "InputSizes":
        """Return it with numbers for some names: `past + new` with one new is `past + 1`."""
        left = {axis: _substitute_sizes(name, sizes) for axis, name in self.names.items()}
        names = {axis: name for axis, name in left.items() if isinstance(name, str)}
        shape = tuple(left.get(axis, size) for axis, size in enumerate(self.shape))
        return replace(
            self,
            shape=tuple(size if isinstance(size, int) else None for size in shape),
            names=names,
        )


def parse_shapes(texts: Sequence[str], names: Sequence[str]) -> dict[str, Declared]:
    """Return the shapes that `NAME=1,3,640,640` give; the only input of a model needs no name.

    `x=1,3,48,?` leaves the last size as the model has it, and `x=1,3,48,width` calls it so. Raises
    ConfigError.
    """
    found: dict[str, Declared] = {}
    for text in texts:
        name, sizes = _split_shape_option(text, names)
        if name not in names:
            meant = find_closest(name, names)
            hint = (
                f"; did you mean `{format_value(meant)}`?"
                if meant
                else f"; it has {_format_names(names)}"
            )
            raise ConfigError(
                f"--shape {format_value(text)}: the model has no input of this name{hint}"
            )
        if name in found:
            raise ConfigError(
                f"--shape {format_value(text)}: the shape of this input is given twice"
            )
        found[name] = _parse_sizes(text, sizes)
    return found


def resolve_sizes(
    declared: Mapping[str, Declared | None], shapes: Mapping[str, Declared]
) -> dict[str, InputSizes]:
    """Return what is known of each input: what is given for a name holds wherever it stands.

    None is the shape of an input whose rank is not known either. Raises ConfigError where a shape
    that was given does not fit the model.
    """
    named: dict[str, int] = {}
    for name, shape in shapes.items():
        for axis, (said, size) in enumerate(_pair_sizes(name, declared[name], shape)):
            if not isinstance(size, int):
                _refuse_name(name, axis, said, size)
                continue
            known = named.setdefault(said, size) if isinstance(said, str) else said
            if known not in {None, size}:
                called = f" ({format_value(said)})" if isinstance(said, str) else ""
                raise ConfigError(
                    f"--shape {format_value(name)}: dimension {axis}{called} is {size}, "
                    f"and {known} in the model or in another --shape"
                )
    return {
        name: _build_input_sizes(
            name, _merge_shapes(shape, shapes[name]) if name in shapes else shape, named
        )
        for name, shape in declared.items()
    }


def _substitute_sizes(extent: str, sizes: Sizes) -> str | int:
    """Return an open size with numbers for some names; a number where none is left."""
    parts = [
        sizes.get(part, part) if isinstance(part, str) else part for part in parse_terms(extent)
    ]
    added = sum(part for part in parts if isinstance(part, int))
    names = [part for part in parts if isinstance(part, str)]
    return " + ".join([*names, str(added)] if added else names) if names else added


def _merge_shapes(declared: Declared | None, shape: Declared) -> Declared:
    """Return a shape as it is given, and as the model has it where nothing is."""
    pairs = zip(declared or (None,) * len(shape), shape, strict=True)
    return tuple(said if size is None else size for said, size in pairs)


def _refuse_name(name: str, axis: int, said: int | str | None, size: str | None) -> None:
    """Raise ConfigError for a name where the model has a number."""
    if isinstance(said, int) and size is not None:
        raise ConfigError(
            f"--shape {format_value(name)}: dimension {axis} is {said} in the model, and not "
            f"`{size}`"
        )


def _build_input_sizes(
    name: str, declared: Declared | None, named: Mapping[str, int]
) -> InputSizes:
    if declared is None:
        raise ConfigError(
            f"input '{format_value(name)}' has no shape in the model, not even a number of "
            "dimensions; "
            f"give it: --shape {format_value(name)}=1,3,640,640"
        )
    shape: list[int | None] = []
    left, assumed = {}, {}
    for axis, said in enumerate(declared):
        size = named.get(said) if isinstance(said, str) else said
        if size is None and _is_batch(said, axis, len(declared)):
            assumed[axis] = str(said or "")
            size = 1
        elif size is None:
            left[axis] = str(said or "")
        shape.append(size)
    return InputSizes(tuple(shape), left, assumed)


def is_made_up(name: str) -> bool:
    """Tell whether a dimension has no name, or one that an exporter has made up."""
    return not name or bool(_MEANINGLESS.fullmatch(name))


def _is_batch(said: int | str | None, axis: int, rank: int) -> bool:
    name = str(said or "")
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
    known = next((name for name in names if text.startswith(f"{name}=")), None)
    if known is not None:
        return known, text.removeprefix(f"{known}=")
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
