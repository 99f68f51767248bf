"""The sizes of a model's inputs: what the model says, what a user gives, and what is left open."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from autopipe.config.dimension import NAME, Sizes, terms
from autopipe.config.model import OPEN
from autopipe.config.problem import shown
from autopipe.config.suggestion import closest
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
        left = {axis: _without(name, sizes) for axis, name in self.names.items()}
        names = {axis: name for axis, name in left.items() if isinstance(name, str)}
        shape = tuple(left.get(axis, size) for axis, size in enumerate(self.shape))
        return replace(
            self,
            shape=tuple(size if isinstance(size, int) else None for size in shape),
            names=names,
        )


def given(texts: Sequence[str], names: Sequence[str]) -> dict[str, Declared]:
    """Return the shapes that `NAME=1,3,640,640` give; the only input of a model needs no name.

    `x=1,3,48,?` leaves the last size as the model has it, and `x=1,3,48,width` calls it so. Raises
    ConfigError.
    """
    found: dict[str, Declared] = {}
    for text in texts:
        name, sizes = _parted(text, names)
        if name not in names:
            meant = closest(name, names)
            hint = f"; did you mean `{shown(meant)}`?" if meant else f"; it has {_listed(names)}"
            raise ConfigError(f"--shape {shown(text)}: the model has no input of this name{hint}")
        if name in found:
            raise ConfigError(f"--shape {shown(text)}: the shape of this input is given twice")
        found[name] = _sizes(text, sizes)
    return found


def settled(
    declared: Mapping[str, Declared | None], shapes: Mapping[str, Declared]
) -> dict[str, InputSizes]:
    """Return what is known of each input: what is given for a name holds wherever it stands.

    None is the shape of an input whose rank is not known either. Raises ConfigError where a shape
    that was given does not fit the model.
    """
    named: dict[str, int] = {}
    for name, shape in shapes.items():
        for axis, (said, size) in enumerate(_paired(name, declared[name], shape)):
            if not isinstance(size, int):
                _refuse_name(name, axis, said, size)
                continue
            known = named.setdefault(said, size) if isinstance(said, str) else said
            if known not in {None, size}:
                called = f" ({shown(said)})" if isinstance(said, str) else ""
                raise ConfigError(
                    f"--shape {shown(name)}: dimension {axis}{called} is {size}, "
                    f"and {known} in the model or in another --shape"
                )
    return {
        name: _known(name, _merged(shape, shapes[name]) if name in shapes else shape, named)
        for name, shape in declared.items()
    }


def _without(extent: str, sizes: Sizes) -> str | int:
    """Return an open size with numbers for some names; a number where none is left."""
    parts = [sizes.get(part, part) if isinstance(part, str) else part for part in terms(extent)]
    added = sum(part for part in parts if isinstance(part, int))
    names = [part for part in parts if isinstance(part, str)]
    return " + ".join([*names, str(added)] if added else names) if names else added


def _merged(declared: Declared | None, shape: Declared) -> Declared:
    """Return a shape as it is given, and as the model has it where nothing is."""
    pairs = zip(declared or (None,) * len(shape), shape, strict=True)
    return tuple(said if size is None else size for said, size in pairs)


def _refuse_name(name: str, axis: int, said: int | str | None, size: str | None) -> None:
    """Raise ConfigError for a name where the model has a number."""
    if isinstance(said, int) and size is not None:
        raise ConfigError(
            f"--shape {shown(name)}: dimension {axis} is {said} in the model, and not `{size}`"
        )


def _known(name: str, declared: Declared | None, named: Mapping[str, int]) -> InputSizes:
    if declared is None:
        raise ConfigError(
            f"input '{shown(name)}' has no shape in the model, not even a number of dimensions; "
            f"give it: --shape {shown(name)}=1,3,640,640"
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


def _paired(
    name: str, declared: Declared | None, shape: Declared
) -> Iterator[tuple[int | str | None, int | str | None]]:
    if declared is not None and len(declared) != len(shape):
        raise ConfigError(
            f"--shape {shown(name)}: {len(shape)} sizes are given, the model has {len(declared)}"
        )
    yield from zip(declared or (None,) * len(shape), shape, strict=True)


def _parted(text: str, names: Sequence[str]) -> tuple[str, str]:
    known = next((name for name in names if text.startswith(f"{name}=")), None)
    if known is not None:
        return known, text.removeprefix(f"{known}=")
    name, equals, sizes = text.rpartition("=")
    if equals:
        return name, sizes
    if len(names) == 1:
        return names[0], text
    raise ConfigError(
        f"--shape {shown(text)}: write NAME={shown(text)}; the inputs are {_listed(names)}"
    )


def _sizes(text: str, sizes: str) -> Declared:
    words = [word.strip() for word in sizes.strip().removeprefix("[").removesuffix("]").split(",")]
    if all(re.fullmatch(rf"{_SIZE}|\{OPEN}|{NAME[1:-1]}", word, re.ASCII) for word in words):
        return tuple(
            None if word == OPEN else int(word) if word[0].isdigit() else word for word in words
        )
    raise ConfigError(
        f"--shape {shown(text)}: write the sizes as whole numbers: NAME=1,3,640,640; "
        f"{OPEN} or a name leaves one open"
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{shown(name)}`" for name in names)
