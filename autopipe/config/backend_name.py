"""Names of backends and of their devices."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from autopipe.backends import BACKENDS, DEVICES
from autopipe.config.one_of import check_one_of

_KINDS: Final[list[str]] = list(BACKENDS)
_DEVICES: Final[list[str]] = list(DEVICES)

TargetKind = Annotated[
    str, AfterValidator(check_one_of(_KINDS)), Field(json_schema_extra={"enum": [*_KINDS]})
]
"""TVM's target kind of a backend."""

DeviceName = Annotated[
    str, AfterValidator(check_one_of(_DEVICES)), Field(json_schema_extra={"enum": [*_DEVICES]})
]
"""TVM's name of the device of a backend."""
