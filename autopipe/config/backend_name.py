"""Names of backends and of their devices."""

from collections.abc import Callable, Iterable
from typing import Annotated, Final

from pydantic import AfterValidator, Field
from pydantic_core import PydanticKnownError

from autopipe.backends import BACKENDS, DEVICES


def _one_of(names: Iterable[str]) -> Callable[[str], str]:
    known = tuple(names)

    def check(name: str) -> str:
        if name not in known:
            raise PydanticKnownError("literal_error", {"expected": " or ".join(map(repr, known))})
        return name

    return check


_KINDS: Final[list[str]] = list(BACKENDS)
_DEVICES: Final[list[str]] = list(DEVICES)

TargetKind = Annotated[
    str, AfterValidator(_one_of(_KINDS)), Field(json_schema_extra={"enum": [*_KINDS]})
]
"""TVM's target kind of a backend."""

DeviceName = Annotated[
    str, AfterValidator(_one_of(_DEVICES)), Field(json_schema_extra={"enum": [*_DEVICES]})
]
"""TVM's name of the device of a backend."""
