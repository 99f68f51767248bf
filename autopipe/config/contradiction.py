"""Report checks of several values with the place of each failure."""

from collections.abc import Iterable

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

Contradiction = tuple[tuple[str | int, ...], object, str]
"""The field within the section, its value, and the rest of a sentence that starts with it."""


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
