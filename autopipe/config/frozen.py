"""The base of every value that comes from YAML: immutable, strict, and a typo is an error."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel, frozen=True):
    """A section of the pipeline file. The string below a field is its documentation."""

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        validate_default=True,
    )
