"""Finds inputs of one number that decide shapes, such as a length or a number of steps.

A package takes such an input, and *verify* draws it, at random: the model may mean few of these
numbers. What an input always is can be said in the pipeline file, before anything is built.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from autopipe.compiler.frontends.imported import Value
from autopipe.compiler.frontends.onnx.tensors import Proto, graphs

_DECIDES: Final[Mapping[str, Sequence[int]]] = {
    "ConstantOfShape": (0,), "Expand": (1,), "OneHot": (1,), "Pad": (1,), "Range": (0, 1, 2),
    "Reshape": (1,), "Resize": (2, 3), "Slice": (1, 2), "Split": (1,), "Tile": (1,), "TopK": (1,),
    "Upsample": (1,),
}  # fmt: skip
"""Inputs whose values decide a shape, by operator."""

_HANDS_ON: Final = frozenset({
    "Abs", "Add", "Cast", "Ceil", "Clip", "Concat", "Div", "Floor", "Gather", "Identity", "Max",
    "Min", "Mod", "Mul", "Neg", "ReduceMax", "ReduceProd", "ReduceSum", "Reshape", "Round", "Slice",
    "Squeeze", "Sub", "Unsqueeze", "Where",
})  # fmt: skip
"""Operators that compute sizes of sizes."""


def warn_of_deciding_inputs(graph: Proto, inputs: Sequence[Value]) -> Iterator[str]:
    """Yield a line for each input of one number that decides a shape."""
    single = [one.name for one in inputs if not one.dimensions and math.prod(one.shape) == 1]
    found: dict[str, str] = {}
    carried = {name: {name} for name in single}
    for inner in graphs(graph):
        for node in inner.node:
            for name in _deciding(node, carried):
                found.setdefault(name, f"{node.op_type} {node.name or node.output[0]!r}")
            if node.op_type in _HANDS_ON:
                values = set[str]().union(*(carried.get(given, set()) for given in node.input))
                carried.update(dict.fromkeys(node.output, values) if values else {})
    for name, where in found.items():
        yield (
            f"input {name!r} decides shapes, in {where}: verify draws it at random; "
            f"model.inputs.{name}.value says what it always is"
        )


def _deciding(node: Proto, carried: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield the inputs of the model that decide a shape in a node."""
    given: list[Any] = list(node.input)
    for place in _DECIDES.get(node.op_type, ()):
        if place < len(given):
            yield from sorted(carried.get(given[place], ()))
