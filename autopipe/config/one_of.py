"""A type whose values are the names in a table."""

from collections.abc import Callable, Iterable

from pydantic_core import PydanticKnownError


def check_one_of(names: Iterable[str]) -> Callable[[str], str]:
    """Return a validator that refuses what is none of the names, as a `Literal` of them would."""
    known = tuple(names)

    def check(name: str) -> str:
        if name not in known:
            raise PydanticKnownError("literal_error", {"expected": " or ".join(map(repr, known))})
        return name

    return check
