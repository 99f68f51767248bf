"""A dimension whose size is known only when the model runs."""

import re
from collections.abc import Mapping
from itertools import product
from typing import Annotated, Final, Self

from pydantic import Field, StringConstraints, model_validator

from autopipe.config.frozen import Frozen

_NAME: Final = "[A-Za-z_][A-Za-z0-9_]{0,59}"

NAME: Final = f"^{_NAME}$"

EXTENT: Final = rf"^{_NAME}( *\+ *({_NAME}|[1-9][0-9]{{0,9}})){{0,3}}$"
"""What a size in a shape may be: the name of a dimension, or a sum that begins with one."""

DimensionName = Annotated[str, StringConstraints(pattern=NAME)]
"""What shapes call a dimension."""

OpenExtent = Annotated[str, StringConstraints(pattern=EXTENT)]
"""A size that is open: `past`, or `past + new`, or `past + 1`."""

LARGEST: Final = 2**31
"""Largest size."""

_Extent = Annotated[int, Field(ge=1, le=LARGEST)]


class Dimension(Frozen, frozen=True):
    """The sizes that a dimension may have: multiples of a number between two bounds.

    Example: `{min: 32, max: 1920, multiple: 32, likely: [640]}` takes 32, 64, ..., 1920, and 640 is
    as fast as in a build for that size alone.
    """

    min: Annotated[int, Field(ge=0, le=LARGEST)] = 1
    """Smallest size; with 0, a graph without edges, say."""
    max: _Extent
    """Largest size."""
    multiple: _Extent = 1
    """Each size is a multiple of it."""
    likely: Annotated[tuple[_Extent, ...], Field(min_length=1, max_length=8)]
    """Sizes that are built and tuned for by themselves; the others share one build."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        if self.first > self.last:
            raise ValueError(
                f"no size from {self.min} to {self.max} is a multiple of {self.multiple}"
            )
        for size in self.likely:
            if reason := self.refusal(size):
                raise ValueError(f"likely: {size} {reason}")
        if len(set(self.likely)) < len(self.likely):
            raise ValueError("likely: a size is named twice")
        return self

    @property
    def first(self) -> int:
        """Return the smallest size that is a multiple."""
        return -(-self.min // self.multiple) * self.multiple

    @property
    def last(self) -> int:
        """Return the largest size that is a multiple."""
        return self.max // self.multiple * self.multiple

    @property
    def told(self) -> str:
        """Return its range in words: `from 32 to 1920, a multiple of 32`."""
        multiple = f", a multiple of {self.multiple}" if self.multiple > 1 else ""
        return f"from {self.first} to {self.last}{multiple}"

    def refusal(self, size: int) -> str | None:
        """Say why a size is none of this dimension, or return None if it is one."""
        if not self.min <= size <= self.max:
            return f"is not from {self.min} to {self.max}"
        if size % self.multiple:
            return f"is no multiple of {self.multiple}"
        return None


Sizes = Mapping[str, int]
"""A size for each dimension, by its name."""


def parse_terms(extent: str) -> tuple[str | int, ...]:
    """Return the names and numbers that an open size is the sum of."""
    parts = (part.strip() for part in extent.split("+"))
    return tuple(part if re.fullmatch(NAME, part) else int(part) for part in parts)


def list_dimension_names(extent: str) -> tuple[str, ...]:
    """Return the dimensions that an open size is the sum of."""
    return tuple(term for term in parse_terms(extent) if isinstance(term, str))


def evaluate_size(extent: str, sizes: Sizes) -> int:
    """Return an open size: of `past + 1` with 7 past it is 8."""
    return sum(term if isinstance(term, int) else sizes[term] for term in parse_terms(extent))


MOST_LIKELY: Final = 8
"""Most combinations of likely sizes: each is a build of its own."""


def list_likely_sizes(dimensions: Mapping[str, Dimension]) -> tuple[Sizes, ...]:
    """Return every combination of likely sizes, the first of each dimension first.

    Example: batch 1 or 8 and length 128 are `({batch: 1, length: 128}, {batch: 8, length: 128})`.
    Without dimensions there is none.
    """
    if not dimensions:
        return ()
    combined = product(*(dimension.likely for dimension in dimensions.values()))
    return tuple(dict(zip(dimensions, sizes, strict=True)) for sizes in combined)


def list_end_sizes(dimensions: Mapping[str, Dimension]) -> tuple[Sizes, ...]:
    """Return the smallest and the largest sizes; nothing without dimensions."""
    if not dimensions:
        return ()
    return (
        {name: dimension.first for name, dimension in dimensions.items()},
        {name: dimension.last for name, dimension in dimensions.items()},
    )


def list_probe_sizes(dimensions: Mapping[str, Dimension]) -> tuple[Sizes, ...]:
    """Return sizes at which a model is looked at: the ends, one step off, and the likely ones.

    A step off the end tells what only divides by more than `multiple`. Without dimensions there is
    none.
    """
    if not dimensions:
        return ()
    second = {name: min(one.first + one.multiple, one.last) for name, one in dimensions.items()}
    last_but_one = {
        name: max(one.last - one.multiple, one.first) for name, one in dimensions.items()
    }
    found = [*list_end_sizes(dimensions), second, last_but_one, *list_likely_sizes(dimensions)]
    return tuple({tuple(sizes.values()): sizes for sizes in found}.values())


def append_sizes(name: str, sizes: Sizes) -> str:
    """Write what has sizes, such as `case 'zeros' with height = 640`; the name alone without."""
    return f"{name} with {format_sizes(sizes)}" if sizes else name


def format_sizes(sizes: Sizes) -> str:
    """Write sizes, such as `height = 640, width = 640`."""
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())
