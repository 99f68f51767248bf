"""Convert Scan to a Loop that gathers slices of the scanned inputs.

    y_final, ys = Scan(y, xs) { body(y, x) -> y', out }

becomes, for xs with T slices along its axis,

    y_final, ys = Loop(T, true, y) { body(round, go, y) -> go, y', out with x = Gather(xs, round) }
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.control.scopes import Names, find_body, instantiate_body
from autopipe.compiler.frontends.onnx.reading.shapes import read_static_shapes
from autopipe.compiler.frontends.onnx.reading.tensors import (
    Array,
    describe_node,
    list_bodies,
    list_nodes,
    read_attributes,
    replace_nodes,
)
from autopipe.errors import ModelError

_FIRST: Final = 9
"""Before it, Scan had a batch axis, and lengths as an input."""


def check_scans(graph: GraphProto, opset: int) -> None:
    """Raise ModelError for a Scan of an unsupported opset."""
    for node in list_nodes(graph):
        if node.op_type == "Scan" and opset < _FIRST:
            raise ModelError(
                f"{describe_node(node)} is that of opset {opset}, which is not supported; "
                f"convert the model to opset {_FIRST} or a later one"
            )


def to_loops(graph: GraphProto, shapes: Mapping[str, tuple[int, ...]], names: Names) -> None:
    """Replace each Scan of a graph and its inner graphs by a Loop.

    `shapes` are those of captured values. Raises ModelError for an inconsistent Scan, or if a
    scanned input has no known shape.
    """
    shapes = {**shapes, **read_static_shapes(graph)}
    nodes: list[NodeProto] = []
    for node in graph.node:
        for inner in list_bodies(node):
            to_loops(inner, shapes, names)
        nodes.extend(_Scan(node, shapes, names).loop() if node.op_type == "Scan" else [node])
    replace_nodes(graph, nodes)


class _Scan:
    """The conversion of one Scan; `_scanned` are the inputs that are cut into slices."""

    def __init__(
        self, node: NodeProto, shapes: Mapping[str, tuple[int, ...]], names: Names
    ) -> None:
        self._node, self._names, self._body = node, names, find_body(node)
        self._attributes = read_attributes(node)
        count = int(self._attributes.get("num_scan_inputs", 0))
        self._states = list(node.input)[: len(node.input) - count]
        self._scanned = list(node.input)[len(self._states) :]
        self._stack_count = len(self._body.output) - len(self._states)
        if (
            not 0 < count <= len(node.input)
            or self._stack_count < 0
            or len(self._body.input) != len(node.input)
            or len(self._body.output) < len(node.output)
        ):
            raise ModelError(f"{describe_node(node)} and its body differ in inputs or outputs")
        self._shapes = [self._find_shape(name, shapes) for name in self._scanned]
        self._nodes: list[NodeProto] = []

    def loop(self) -> list[NodeProto]:
        """Return the Loop and its auxiliary nodes."""
        axes = self._read_list("scan_input_axes", len(self._scanned))
        axes = [
            _normalize_axis(a, len(s), self._node) for a, s in zip(axes, self._shapes, strict=True)
        ]
        lengths = {shape[axis] for shape, axis in zip(self._shapes, axes, strict=True)}
        if len(lengths) != 1:
            raise ModelError(
                f"{describe_node(self._node)} scans inputs of different lengths: {lengths}"
            )
        (length,) = lengths
        inner = self._build_body(axes, length)
        results = list(self._node.output)
        results += [""] * (len(self._body.output) - len(results))
        output_nodes = self._arrange_outputs(results, length)
        inputs = [
            self._add_constant(np.int64(length)),
            self._add_constant(np.ones((), bool)),
            *self._states,
        ]
        loop = helper.make_node("Loop", inputs, results, name=self._node.name, body=inner)
        return [*self._nodes, loop, *output_nodes]

    def _build_body(self, axes: Sequence[int], length: int) -> GraphProto:
        """Build the body of the loop."""
        number, goes = self._names.fresh("round"), self._names.fresh("goes_on")
        backwards = self._read_list("scan_input_directions", len(self._scanned))
        nodes: list[NodeProto] = []
        at = {0: number, 1: self._names.fresh("round")}
        if 1 in backwards:
            last = self._add_constant(np.int64(length - 1))
            nodes.append(helper.make_node("Sub", [last, number], [at[1]]))
        slices = [self._names.fresh(name) for name in self._scanned]
        for name, outer, axis, back in zip(slices, self._scanned, axes, backwards, strict=True):
            index = at.get(back) or _describe_refusal(self._node, "scan_input_directions")
            nodes.append(helper.make_node("Gather", [outer, index], [name], axis=axis))
        states = [self._names.fresh(name) for name in self._states]
        body_nodes, results = instantiate_body(self._body, [*states, *slices], self._names)
        output_names = [self._names.fresh(name) for name in ("goes_on", *results)]
        pairs = zip([goes, *results], output_names, strict=True)
        nodes += [*body_nodes, *(helper.make_node("Identity", [a], [b]) for a, b in pairs)]
        scalars = [
            helper.make_tensor_value_info(number, TensorProto.INT64, []),
            helper.make_tensor_value_info(goes, TensorProto.BOOL, []),
        ]
        ends = [helper.make_tensor_value_info(output_names[0], TensorProto.BOOL, [])]
        state_inputs = [_rename_value(v, n) for v, n in zip(self._body.input, states, strict=False)]
        outputs = [
            _rename_value(v, n) for v, n in zip(self._body.output, output_names[1:], strict=True)
        ]
        return helper.make_graph(
            nodes, self._body.name or "body", [*scalars, *state_inputs], [*ends, *outputs]
        )

    def _arrange_outputs(self, results: list[str], length: int) -> list[NodeProto]:
        """Return nodes that transpose and reverse the stacks to the requested axes and directions.

        They compute the names in `results`, which are replaced by the outputs of the loop.
        """
        axes = self._read_list("scan_output_axes", self._stack_count)
        backwards = self._read_list("scan_output_directions", self._stack_count)
        nodes: list[NodeProto] = []
        for index, (axis_attribute, back) in enumerate(zip(axes, backwards, strict=True)):
            place = len(self._states) + index
            name = results[place]
            rank = len(self._body.output[place].type.tensor_type.shape.dim) + 1
            axis = _normalize_axis(axis_attribute, rank, self._node)
            if not name or (not axis and not back):
                continue
            results[place] = source = self._names.fresh(name)
            if back:
                order = self._add_constant(np.arange(length, dtype=np.int64)[::-1].copy())
                reversed_name = self._names.fresh(name) if axis else name
                nodes.append(helper.make_node("Gather", [source, order], [reversed_name], axis=0))
                source = reversed_name
            if axis:
                permutation = [*range(1, axis + 1), 0, *range(axis + 1, rank)]
                nodes.append(helper.make_node("Transpose", [source], [name], perm=permutation))
        return nodes

    def _read_list(self, name: str, count: int) -> list[int]:
        values: Any = self._attributes.get(name, [0] * count)
        if len(values) != count:
            _describe_refusal(self._node, name)
        return list(map(int, values))

    def _add_constant(self, value: Array | np.generic) -> str:
        name = self._names.fresh("constant")
        tensor = numpy_helper.from_array(np.asarray(value), name)
        self._nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        return name

    def _find_shape(self, name: str, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        if not shapes.get(name):
            raise ModelError(
                f"{describe_node(self._node)} scans {name!r}, whose shape is not known before the "
                "model runs"
            )
        return shapes[name]


def _normalize_axis(axis: int, rank: int, node: NodeProto) -> int:
    if not -rank <= axis < rank:
        raise ModelError(
            f"{describe_node(node)} has the axis {axis} of a tensor with {rank} dimensions"
        )
    return axis % rank


def _describe_refusal(node: NodeProto, attribute: str) -> str:
    raise ModelError(f"{describe_node(node)} has a wrong attribute {attribute}")


def _rename_value(value: ValueInfoProto, name: str) -> ValueInfoProto:
    copy = type(value)()
    copy.CopyFrom(value)
    copy.name = name
    return copy
