"""Lists without repeated items."""

from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field

Item = TypeVar("Item")


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
