"""The trip count of a Loop, as far as it is known at import."""

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
    read_stored,
)
from autopipe.errors import ModelError

LONGEST: Final = 2**31
"""Maximum trip count of a real loop; exporters write endless loops with a larger one."""

Known = Mapping[str, Array]
"""Constant values by name."""


@dataclass(frozen=True, slots=True)
class Trips:
    """Facts of a Loop's trip count."""

    bounded: bool
    """Whether there is a maximum trip count, which may be computed."""
    most: int | None
    """The maximum trip count; None if it is computed or absent."""
    starts: bool | None
    """Whether the condition is true before the first round; None if it is computed."""
    goes_on: bool | None
    """Whether the condition is true after each round; None if it is computed."""

    @property
    def exactly(self) -> int | None:
        """The exact trip count, None if it is unknown."""
        if self.starts is False or self.most == 0:
            return 0
        if self.starts and self.goes_on is False and (self.most is not None or not self.bounded):
            return 1
        return self.most if self.starts and self.goes_on else None


def find_node_trips(node: NodeProto, constants: Known) -> Trips:
    """Find the trip count of a Loop node. Raises ModelError as `find_trips` does."""
    limit, condition = (*node.input, "", "")[:2]
    state_count, output_count = len(node.input[2:]), len(find_body(node).output)
    if len(find_body(node).input) != 2 + state_count or output_count < 1 + max(
        state_count, len(node.output)
    ):
        raise ModelError(f"{describe_node(node)} and its body differ in inputs or outputs")
    most = int(constants[limit].reshape(-1)[0]) if limit in constants else None
    starts = read_truth(constants, condition) if condition else True
    return find_trips(
        describe_node(node), (bool(limit), most), find_body(node), constants, starts=starts
    )


def find_trips(
    label: str,
    limit: tuple[bool, int | None],
    graph: GraphProto,
    constants: Known,
    *,
    starts: bool | None,
) -> Trips:
    """Find the trip count of a loop with the body `graph`.

    `limit` is (whether there is a maximum trip count, its value if constant); `starts` is the
    initial condition, None if computed. Raises ModelError for a loop that never ends.
    """
    bounded, most = limit
    goes_on = _find_next_condition(graph, constants, starts)
    if not bounded or (most is not None and most > LONGEST):
        if starts and goes_on:
            reason = f"{most} rounds are asked for" if bounded else "no number of rounds is given"
            raise ModelError(f"{label} never ends: {reason}, and its condition is always true")
        bounded, most = False, None
    return Trips(bounded, None if most is None else max(most, 0), starts, goes_on)


def read_scalars(graph: GraphProto) -> dict[str, Array]:
    """Read the constant scalars of a graph by name."""
    stored = read_stored(graph)
    return {name: to_array(tensor) for name, tensor in stored.items() if _is_scalar(tensor)}


def read_truth(constants: Known, name: str) -> bool | None:
    """Return a constant condition, or None if it is computed."""
    return bool(constants[name].reshape(-1)[0]) if name in constants else None


def _find_next_condition(graph: GraphProto, constants: Known, starts: bool | None) -> bool | None:  # noqa: FBT001
    """Return the condition after a round, None if it is computed."""
    name = graph.output[0].name
    producers = {node.output[0]: node for node in graph.node if len(node.output) == 1}
    while name in producers and producers[name].op_type == "Identity":
        name = producers[name].input[0]
    if name in producers:
        tensor = read_constant(producers[name])
        return bool(to_array(tensor).reshape(-1)[0]) if tensor and _is_scalar(tensor) else None
    return starts if name == graph.input[1].name else read_truth(constants, name)


def _is_scalar(tensor: TensorProto) -> bool:
    return all(dim == 1 for dim in tensor.dims)
