"""The base of every value that comes from YAML: immutable, strict, and a typo is an error."""

from pydantic import BaseModel


class Frozen(
    BaseModel,
    frozen=True,
    extra="forbid",
    allow_inf_nan=False,
    defer_build=True,  # most commands need few of all these
):
    """A section of the pipeline file. The string below a field is its documentation.

    `sentences` finds these.
    """
