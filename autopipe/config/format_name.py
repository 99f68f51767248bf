"""Names of model formats."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from autopipe.config.one_of import check_one_of
from autopipe.formats import FORMATS

_NAMES: Final[list[str]] = list(FORMATS)

FormatName = Annotated[
    str, AfterValidator(check_one_of(_NAMES)), Field(json_schema_extra={"enum": [*_NAMES]})
]
"""One of `FORMATS`."""
