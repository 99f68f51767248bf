"""The bases of all values from YAML: immutable and strict, without unknown fields."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

Contradiction = tuple[tuple[str | int, ...], object, str]
"""The field within the section, its value, and the rest of a sentence that starts with it."""

Item = TypeVar("Item")


class Frozen(
    BaseModel,
    frozen=True,
    extra="forbid",
    allow_inf_nan=False,
    defer_build=True,  # most commands need few of these models
):
    """A section of the pipeline file. The string below a field is its documentation.

    `sentences` finds these.
    """


class Consistent(Frozen, frozen=True):
    """A section with checks of several fields together."""

    @model_validator(mode="after")
    def _check_contradictions(self) -> Self:
        raise_contradictions(type(self).__name__, self._contradictions())
        return self

    def _contradictions(self) -> Iterator[Contradiction]:
        """Yield the contradictions among valid fields."""
        raise NotImplementedError


def raise_contradictions(section: str, contradictions: Iterable[Contradiction]) -> None:
    """Raise one ValidationError with all contradictions, if there are any."""
    errors = [
        InitErrorDetails(
            type=PydanticCustomError("contradiction", "Input {why}", {"why": why}),
            loc=at,
            input=value,
        )
        for at, value, why in contradictions
    ]
    if errors:
        raise ValidationError.from_exception_data(section, errors)


def _check_distinct(items: tuple[Item, ...]) -> tuple[Item, ...]:
    for position, item in enumerate(items):
        if item in items[:position]:
            raise ValueError(f"{item} is listed twice")
    return items


Distinct = Annotated[
    tuple[Item, ...],
    AfterValidator(_check_distinct),
    Field(json_schema_extra={"uniqueItems": True}),
]
"""`Distinct[T]` is a tuple of T without repetition."""
