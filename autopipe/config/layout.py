"""Section `layout`: the memory layout of each kind of op."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from autopipe.config.frozen import Contradiction, raise_contradictions
from autopipe.config.suggestion import suggest_name

OPS = ("conv1d", "conv2d", "conv3d")
"""Relax ops that TVM supports in any layout; transposed convolutions have only one."""

_SPACE = {"1": "W", "2": "HW", "3": "DHW"}


def _check_layouts(layout: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    raise_contradictions("layout", _list_contradictions(layout))
    return layout


def _list_contradictions(layout: dict[str, tuple[str, ...]]) -> Iterator[Contradiction]:
    for op, names in layout.items():
        if op not in OPS:
            yield (op,), op, _explain_unknown_op(op)
            continue
        space = _SPACE[op[len("conv")]]
        examples = (f"N{space}C", f"{space}IO")
        if len(names) != len(examples):
            yield (op,), names, f"should be two layouts, data and kernel: [{', '.join(examples)}]"
            continue
        for position, (name, example) in enumerate(zip(names, examples, strict=True)):
            if sorted(name) != sorted(example):
                axes = ", ".join(example)
                yield (op, position), name, f"is not an order of {axes}, such as {example}"
            elif [axis for axis in name if axis in space] != list(space):
                # TVM requires the spatial axes in this order, independent of their names
                yield (op, position), name, f"should have {space} in this order, such as {example}"


def _explain_unknown_op(op: str) -> str:
    if "pool" in op or "norm" in op:
        return "follows the layout of the op before it; leave it out"
    hint = suggest_name(op, OPS, f"known: {', '.join(OPS)}")
    return f"is not an op with a layout to choose{hint}"


Layout = Annotated[
    dict[str, Annotated[tuple[str, ...], Field(json_schema_extra={"minItems": 2, "maxItems": 2})]],
    Field(min_length=1, json_schema_extra={"propertyNames": {"enum": list(OPS)}}),
    AfterValidator(_check_layouts),
]
"""Desired layouts by Relax op: `conv2d: [NHWC, HWIO]` is data, then kernel."""
