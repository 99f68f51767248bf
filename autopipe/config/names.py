"""Types of names and paths in several sections."""

from collections.abc import Callable, Iterable
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints
from pydantic_core import PydanticKnownError

from autopipe.backends import BACKENDS, DEVICES
from autopipe.formats import FORMATS


def _check_one_of(names: Iterable[str]) -> Callable[[str], str]:
    """Build a validator that refuses all but the names, like a `Literal` of them."""
    allowed_names = tuple(names)

    def check(name: str) -> str:
        if name not in allowed_names:
            raise PydanticKnownError(
                "literal_error", {"expected": " or ".join(map(repr, allowed_names))}
            )
        return name

    return check


_KINDS: Final[list[str]] = list(BACKENDS)
_DEVICES: Final[list[str]] = list(DEVICES)
_FORMATS: Final[list[str]] = list(FORMATS)

TargetKind = Annotated[
    str, AfterValidator(_check_one_of(_KINDS)), Field(json_schema_extra={"enum": [*_KINDS]})
]
"""TVM's target kind of a backend."""

DeviceName = Annotated[
    str, AfterValidator(_check_one_of(_DEVICES)), Field(json_schema_extra={"enum": [*_DEVICES]})
]
"""TVM's name of the device of a backend."""

FormatName = Annotated[
    str, AfterValidator(_check_one_of(_FORMATS)), Field(json_schema_extra={"enum": [*_FORMATS]})
]
"""A model format, one of `FORMATS`."""

Samples = Annotated[str, StringConstraints(pattern=r"^[^\x00]+\.npz$", max_length=4096)]
"""The path of a `.npz` file of inputs."""
