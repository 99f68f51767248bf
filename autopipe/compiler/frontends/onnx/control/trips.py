"""How often a Loop runs, as far as that is known before the model runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from onnx import GraphProto, NodeProto, TensorProto
from onnx.numpy_helper import to_array

from autopipe.compiler.frontends.onnx.control.scopes import find_body
from autopipe.compiler.frontends.onnx.reading.tensors import (
    Array,
    describe_node,
    read_constant,
)
from autopipe.errors import ModelError

LONGEST: Final = 2**31
"""No loop of a model takes more rounds than this; an endless one is mostly written with more."""

Known = Mapping[str, Array]
"""Values that are known before the model runs, by name."""


@dataclass(frozen=True, slots=True)
class Trips:
    """What is known of the rounds of a Loop."""

    bounded: bool
    """Whether it takes no more rounds than a number says, which may be computed."""
    most: int | None
    """That number; None where it is computed, or there is none."""
    starts: bool | None
    """Whether the condition holds before the first round; None where that is computed."""
    goes_on: bool | None
    """Whether it holds after each round; None where that is computed."""

    @property
    def exactly(self) -> int | None:
        """How often it runs, None if that is not known."""
        if self.starts is False or self.most == 0:
            return 0
        if self.starts and self.goes_on is False and (self.most is not None or not self.bounded):
            return 1
        return self.most if self.starts and self.goes_on else None


def find_node_trips(node: NodeProto, known: Known) -> Trips:
    """Return what is known of the rounds of a Loop. Raises ModelError, as `trips` does."""
    limit, condition = (*node.input, "", "")[:2]
    carried, made = len(node.input[2:]), len(find_body(node).output)
    if len(find_body(node).input) != 2 + carried or made < 1 + max(carried, len(node.output)):
        raise ModelError(f"{describe_node(node)} and its body differ in inputs or outputs")
    most = int(known[limit].reshape(-1)[0]) if limit in known else None
    starts = read_truth(known, condition) if condition else True
    return find_trips(
        describe_node(node), (bool(limit), most), find_body(node), known, starts=starts
    )


def find_trips(
    what: str,
    limit: tuple[bool, int | None],
    graph: GraphProto,
    known: Known,
    *,
    starts: bool | None,
) -> Trips:
    """Return what is known of the rounds of a loop with the body `graph`.

    `limit` says whether it has a number of rounds, and which if that is known; `starts` says
    whether its condition holds at first. Raises ModelError
    for a loop that never ends.
    """
    bounded, most = limit
    goes_on = _find_next_condition(graph, known, starts)
    if not bounded or (most is not None and most > LONGEST):
        if starts and goes_on:
            unbounded = (
                f"{most} rounds are asked for" if bounded else "no number of rounds is given"
            )
            raise ModelError(f"{what} never ends: {unbounded}, and its condition is always true")
        bounded, most = False, None
    return Trips(bounded, None if most is None else max(most, 0), starts, goes_on)


def read_scalars(graph: GraphProto) -> dict[str, Array]:
    """Return the single numbers of a graph that stand in the model."""
    found = {tensor.name: to_array(tensor) for tensor in graph.initializer if _is_scalar(tensor)}
    for node in graph.node:
        tensor = read_constant(node)
        if tensor is not None and _is_scalar(tensor):
            found[node.output[0]] = to_array(tensor)
    return found


def read_truth(known: Known, name: str) -> bool | None:
    """Return a condition, or None where it is computed."""
    return bool(known[name].reshape(-1)[0]) if name in known else None


def _find_next_condition(graph: GraphProto, known: Known, starts: bool | None) -> bool | None:  # noqa: FBT001
    """Return the condition that each round leaves behind."""
    name = graph.output[0].name
    made = {node.output[0]: node for node in graph.node if len(node.output) == 1}
    while name in made and made[name].op_type == "Identity":
        name = made[name].input[0]
    if name in made:
        tensor = read_constant(made[name])
        return bool(to_array(tensor).reshape(-1)[0]) if tensor and _is_scalar(tensor) else None
    return starts if name == graph.input[1].name else read_truth(known, name)


def _is_scalar(tensor: TensorProto) -> bool:
    return all(dim == 1 for dim in tensor.dims)
