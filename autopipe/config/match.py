"""Patterns on tasks, for rules of the schedule policy and for filters."""

import re
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from autopipe.config.frozen import Frozen
from autopipe.config.suggestion import find_closest

RANGE = r"^(?:\*|(\d{1,18})?\.\.(\d{1,18})?)$"
"""Pattern of a range of sizes: `*`, `8..64`, `8..`, `..64`."""

Text = Annotated[str, StringConstraints(min_length=1)]
Scalar = bool | int | float | str | None


def _check_size(value: int | str) -> int | str:
    if isinstance(value, str) and not re.fullmatch(RANGE, value):
        raise ValueError(f"{value[:80]!r} is no size; write 64, '*', '8..64', '8..' or '..64'")
    if isinstance(value, str) and ".." in value:
        least, most = value.split("..")
        if least and most and int(least) > int(most):
            raise ValueError(f"{value!r} fits no size; write '{most}..{least}'")
    if isinstance(value, int) and value < 0:
        raise ValueError(f"{value} is no size; write 64, '*', '8..64', '8..' or '..64'")
    return value


Size = Annotated[
    int | str,
    AfterValidator(_check_size),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": RANGE}]}
    ),
]
"""A size, or a range of sizes."""


def _check_op_name(value: str) -> str:
    if value.startswith("relax."):
        raise ValueError(f"{value[:80]!r} names no op; leave out `relax.`")
    return value


def _check_dtype(value: str) -> str:
    if re.fullmatch(r"bool|u?int[1-9]\d*|b?float[1-9]\d*(_\w+)?", value):
        return value
    suggestion = find_closest(
        value, ("bool", "int8", "int32", "int64", "float16", "float32", "float64")
    )
    raise ValueError(f"{value[:80]!r} is no element type; write {suggestion or 'float32'}")


def _check_layout(value: str) -> str:
    if re.fullmatch(r"[A-Z]\w*", value):
        return value
    raise ValueError(f"{value[:80]!r} is no layout; write {value[:80].upper()}")


class Match(Frozen, frozen=True):
    """A pattern: it matches the tasks that fulfil all given fields."""

    op: Annotated[Text, AfterValidator(_check_op_name)] = "*"
    """Glob over the names of the ops in the task, such as `nn.conv2d*`; one op that fits is
    enough."""
    kind: (
        Literal[
            "elementwise", "broadcast", "injective", "reduction", "out_elementwise_fusable",
            "opaque",
        ]
        | None
    ) = None  # fmt: skip
    """TVM's op pattern of the task, as `autopipe tasks` shows it."""
    attributes: dict[str, Scalar | tuple[Scalar, ...]] = {}
    """Attributes that the op has to have with these values: `{strides: [1, 1], groups: 1}`."""
    layout: Annotated[Text, AfterValidator(_check_layout)] | None = None
    """Layout of the data that the op works on, such as `NHWC`."""
    shape: Annotated[tuple[Size, ...], Field(max_length=16)] | None = None
    """Shape of an input or an output, a size for each dimension: `64`, `'*'` for any, `'8..64'`,
    `'8..'` or `'..64'` for a range."""
    dtype: Annotated[Text, AfterValidator(_check_dtype)] | None = None
    """Element type of an input or an output, such as `float32`."""
    share: Annotated[float, Field(ge=0, le=1)] | None = None
    """Least share of the model's time. In tuning it is measured, with the schedules that need no
    search; before that, and without tuning, it is estimated from arithmetic and memory traffic."""

    def __str__(self) -> str:
        """Format it as YAML; a pattern with only an op is its name."""
        fields = self.model_dump(exclude_defaults=True)
        if fields.keys() <= {"op"}:
            return self.op
        return "{" + ", ".join(f"{name}: {_to_yaml(value)}" for name, value in fields.items()) + "}"


def _to_yaml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_to_yaml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_to_yaml, value))}]"
    return "null" if value is None else str(value)


def _to_op_pattern(value: object) -> object:
    return {"op": value} if isinstance(value, str) else value


class _OrName:
    """Adds the name of an op as an alternative to the JSON schema."""

    @staticmethod
    def __get_pydantic_json_schema__(
        core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [handler(core), {"type": "string", "minLength": 1}]}


Pattern = Annotated[Match, BeforeValidator(_to_op_pattern), _OrName]
"""A pattern, or the name of an op as a short form."""
