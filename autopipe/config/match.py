"""Which tasks a rule of the schedule policy is for."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, WithJsonSchema

from autopipe.config.frozen import Frozen

RANGE = r"^(?:\*|(\d{1,18})?\.\.(\d{1,18})?)$"
"""How a size that is left open is written: `*`, `8..64`, `8..`, `..64`."""

Text = Annotated[str, StringConstraints(min_length=1)]
Scalar = bool | int | float | str | None


def _size(value: int | str) -> int | str:
    if isinstance(value, str) and not re.fullmatch(RANGE, value):
        raise ValueError(f"{value[:80]!r} is no size; write 64, '*', '8..64', '8..' or '..64'")
    if isinstance(value, int) and value < 0:
        raise ValueError(f"{value} is no size; write 64, '*', '8..64', '8..' or '..64'")
    return value


Size = Annotated[
    int | str,
    AfterValidator(_size),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": RANGE}]}
    ),
]
"""A size, or which sizes fit."""


class Match(Frozen, frozen=True):
    """Which tasks a rule is for: those of which all that is given here is true."""

    op: Text = "*"
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
    layout: Text | None = None
    """Layout of the data that the op works on, such as `NHWC`."""
    shape: Annotated[tuple[Size, ...], Field(max_length=16)] | None = None
    """Shape of an input or an output, a size for each dimension: `64`, `'*'` for any, `'8..64'`,
    `'8..'` or `'..64'` for a range."""
    dtype: Text | None = None
    """Element type of an input or an output, such as `float32`."""
    share: Annotated[float, Field(ge=0, le=1)] | None = None
    """Least share of the model's time. In tuning it is measured, with the schedules that need no
    search; before that, and without tuning, it is estimated from arithmetic and memory traffic."""
