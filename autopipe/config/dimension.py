"""A dynamic dimension: its range, multiple and likely sizes."""

import re
from collections.abc import Mapping
from itertools import product
from typing import Annotated, Final, Self

from pydantic import Field, StringConstraints, model_validator

from autopipe.config.frozen import Frozen

_NAME: Final = "[A-Za-z_][A-Za-z0-9_]{0,59}"

NAME: Final = f"^{_NAME}$"

EXTENT: Final = rf"^{_NAME}( *\+ *({_NAME}|[1-9][0-9]{{0,9}})){{0,3}}$"
"""Pattern of a symbolic size: the name of a dimension, or a sum that begins with one."""

DimensionName = Annotated[str, StringConstraints(pattern=NAME)]
"""Name of a dimension in shapes."""

OpenExtent = Annotated[str, StringConstraints(pattern=EXTENT)]
"""A symbolic size: `past`, or `past + new`, or `past + 1`."""

LARGEST: Final = 2**31
"""Largest size."""

_Extent = Annotated[int, Field(ge=1, le=LARGEST)]


class Dimension(Frozen, frozen=True):
    """The sizes of a dynamic dimension: multiples of a number between two bounds.

    Example: `{min: 32, max: 1920, multiple: 32, likely: [640]}` takes 32, 64, ..., 1920, and 640 is
    as fast as in a build with that static size.
    """

    min: Annotated[int, Field(ge=0, le=LARGEST)] = 1
    """Smallest size; with 0, a graph without edges, say."""
    max: _Extent
    """Largest size."""
    multiple: _Extent = 1
    """Each size is a multiple of it."""
    likely: Annotated[tuple[_Extent, ...], Field(min_length=1, max_length=8)]
    """Sizes with a specialized build that is tuned for them; the others share a generic one."""

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
        """The smallest size that is a multiple."""
        return -(-self.min // self.multiple) * self.multiple

    @property
    def last(self) -> int:
        """The largest size that is a multiple."""
        return self.max // self.multiple * self.multiple

    @property
    def range_text(self) -> str:
        """The range in words: `from 32 to 1920, a multiple of 32`."""
        multiple = f", a multiple of {self.multiple}" if self.multiple > 1 else ""
        return f"from {self.first} to {self.last}{multiple}"

    def refusal(self, size: int) -> str | None:
        """Return the reason why a size is invalid for this dimension, or None for a valid one."""
        if not self.min <= size <= self.max:
            return f"is not from {self.min} to {self.max}"
        if size % self.multiple:
            return f"is no multiple of {self.multiple}"
        return None


Sizes = Mapping[str, int]
"""A size for each dimension, by its name."""


def parse_terms(extent: str) -> tuple[str | int, ...]:
    """Parse a symbolic size to the names and numbers of its sum."""
    parts = (part.strip() for part in extent.split("+"))
    return tuple(part if re.fullmatch(NAME, part) else int(part) for part in parts)


def list_dimension_names(extent: str) -> tuple[str, ...]:
    """List the dimensions in a symbolic size."""
    return tuple(term for term in parse_terms(extent) if isinstance(term, str))


def evaluate_size(extent: str, sizes: Sizes) -> int:
    """Evaluate a symbolic size: `past + 1` is 8 for a past of 7."""
    return sum(term if isinstance(term, int) else sizes[term] for term in parse_terms(extent))


MOST_LIKELY: Final = 8
"""Largest number of combinations of likely sizes: each has a specialized build."""


def list_likely_sizes(dimensions: Mapping[str, Dimension]) -> tuple[Sizes, ...]:
    """List all combinations of likely sizes, the first of each dimension first.

    Example: batch 1 or 8 and length 128 are `({batch: 1, length: 128}, {batch: 8, length: 128})`.
    Empty without dimensions.
    """
    if not dimensions:
        return ()
    combinations = product(*(dimension.likely for dimension in dimensions.values()))
    return tuple(dict(zip(dimensions, sizes, strict=True)) for sizes in combinations)


def list_end_sizes(dimensions: Mapping[str, Dimension]) -> tuple[Sizes, ...]:
    """Return the smallest and the largest sizes; empty without dimensions."""
    if not dimensions:
        return ()
    return (
        {name: dimension.first for name, dimension in dimensions.items()},
        {name: dimension.last for name, dimension in dimensions.items()},
    )


def list_probe_sizes(dimensions: Mapping[str, Dimension]) -> tuple[Sizes, ...]:
    """List the sizes at which a model is examined: the ends, one step off, and the likely ones.

    A step off the end reveals divisors larger than `multiple`. Empty without dimensions.
    """
    if not dimensions:
        return ()
    second = {name: min(one.first + one.multiple, one.last) for name, one in dimensions.items()}
    last_but_one = {
        name: max(one.last - one.multiple, one.first) for name, one in dimensions.items()
    }
    probe_sizes = [
        *list_end_sizes(dimensions),
        second,
        last_but_one,
        *list_likely_sizes(dimensions),
    ]
    return tuple({tuple(sizes.values()): sizes for sizes in probe_sizes}.values())


def append_sizes(name: str, sizes: Sizes) -> str:
    """Append sizes to a name, such as `case 'zeros' with height = 640`; the name alone if empty."""
    return f"{name} with {format_sizes(sizes)}" if sizes else name


def format_sizes(sizes: Sizes) -> str:
    """Format sizes, such as `height = 640, width = 640`."""
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())
