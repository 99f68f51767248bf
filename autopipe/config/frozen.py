"""The base of every value that comes from YAML: immutable, strict, and a typo is an error."""

from typing import ClassVar

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer


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


class Sparse(Frozen, frozen=True):
    """A value that is written without those of its `ADDED` fields that are at their defaults.

    So what does not use a field has the same key and the same bytes with it and without it.
    """

    ADDED: ClassVar[frozenset[str]]
    """Names of these fields."""

    @model_serializer(mode="wrap")
    def _drop_empty_fields(self, dump: SerializerFunctionWrapHandler) -> dict[str, object]:
        document: dict[str, object] = dump(self)
        for name in self.ADDED:
            if getattr(self, name) == type(self).model_fields[name].default:
                document.pop(name, None)
        return document
