"""A validator for the names of a table."""

from collections.abc import Callable, Iterable

from pydantic_core import PydanticKnownError


def check_one_of(names: Iterable[str]) -> Callable[[str], str]:
    """Build a validator that refuses all but the names, like a `Literal` of them."""
    allowed_names = tuple(names)

    def check(name: str) -> str:
        if name not in allowed_names:
            raise PydanticKnownError(
                "literal_error", {"expected": " or ".join(map(repr, allowed_names))}
            )
        return name

    return check
