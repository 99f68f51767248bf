"""The base of every value from YAML: immutable and strict, without unknown fields."""

from typing import ClassVar

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer


class Frozen(
    BaseModel,
    frozen=True,
    extra="forbid",
    allow_inf_nan=False,
    defer_build=True,  # most commands need few of these models
):
    """A section of the pipeline file. The string below a field is its documentation.

    `sentences` finds these.
    """


class Sparse(Frozen, frozen=True):
    """A value that is serialized without `ADDED` fields that have their defaults.

    So files that do not use a field keep their key and their bytes when the field is added.
    """

    ADDED: ClassVar[frozenset[str]]
    """Names of the fields that are omitted at their defaults."""

    @model_serializer(mode="wrap")
    def _drop_empty_fields(self, dump: SerializerFunctionWrapHandler) -> dict[str, object]:
        document: dict[str, object] = dump(self)
        for name in self.ADDED:
            if getattr(self, name) == type(self).model_fields[name].default:
                document.pop(name, None)
        return document
