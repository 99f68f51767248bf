"""Names of model formats."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from autopipe.config.one_of import one_of
from autopipe.formats import FORMATS

_NAMES: Final[list[str]] = list(FORMATS)

FormatName = Annotated[
    str, AfterValidator(one_of(_NAMES)), Field(json_schema_extra={"enum": [*_NAMES]})
]
"""One of `FORMATS`."""
