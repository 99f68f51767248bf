"""Lift initializers and constants of inner graphs to the outermost graph."""

from collections import Counter

from onnx import GraphProto, TensorProto, helper

from autopipe.compiler.frontends.onnx.control.scopes import (
    Names,
    has_control,
    redirect_inputs,
    rename_captured,
)
from autopipe.compiler.frontends.onnx.reading.tensors import (
    list_bodies,
    list_graphs,
    read_constant,
    read_stored,
)


def lift_tensors(graph: GraphProto) -> None:
    """Move all tensors of inner graphs to the outermost graph, equal tensors under one name.

    A body may capture outer values, so that the model computes the same.
    """
    if has_control(graph):
        _Lifting(graph).into(graph)


class _Lifting:
    def __init__(self, graph: GraphProto) -> None:
        self._outer = graph
        self._names = Names(graph)
        self._outer_contents = {tensor.name: _read_content(tensor) for tensor in graph.initializer}
        other_names: Counter[str] = Counter()
        contents_by_name: dict[str, set[bytes]] = {}
        for inner in list_graphs(graph):
            other_names.update(value.name for value in inner.input)
            for node in inner.node:
                if inner is graph or read_constant(node) is None:
                    other_names.update(node.output)
            for tensor in read_stored(inner).values():
                contents_by_name.setdefault(tensor.name, set()).add(_read_content(tensor))
            if inner is not graph:
                other_names.update(value.name for value in inner.output)  # computed in the body
        self._unique_names = {
            name
            for name, found in contents_by_name.items()
            if len(found) == 1 and not other_names[name]
        }
        self._new_names: dict[tuple[str, bytes], str] = {}

    def into(self, graph: GraphProto) -> None:
        """Lift the tensors of all bodies in a graph."""
        for node in graph.node:
            for inner in list_bodies(node):
                self.into(inner)
                self._lift_graph(inner)

    def _lift_graph(self, graph: GraphProto) -> None:
        outer_names = {name: self._place(tensor) for name, tensor in read_stored(graph).items()}
        del graph.initializer[:]
        for index, node in reversed(list(enumerate(graph.node))):
            if read_constant(node) is not None:
                del graph.node[index]
        for name in dict.fromkeys(
            value.name for value in graph.output if value.name in outer_names
        ):
            # a result has to be computed in the body
            inner_name = self._names.fresh(name)
            for node in graph.node:
                redirect_inputs(node, {name: inner_name})
            graph.node.append(helper.make_node("Identity", [inner_name], [name]))
            outer_names[inner_name] = outer_names.pop(name)
        rename_captured(graph, outer_names)

    def _place(self, tensor: TensorProto) -> str:
        """Add a tensor to the outermost graph if it is absent, and return its name there."""
        content = _read_content(tensor)
        if tensor.name in self._unique_names:
            name = str(tensor.name)
        else:
            key = (tensor.name, content)
            name = self._new_names.get(key) or self._names.fresh(tensor.name)
            self._new_names[key] = name
        if name not in self._outer_contents:
            self._outer_contents[name] = content
            copy = self._outer.initializer.add()
            copy.CopyFrom(tensor)
            copy.name = name
        return name


def _read_content(tensor: TensorProto) -> bytes:
    """Serialize a tensor without its name."""
    copy = type(tensor)()
    copy.CopyFrom(tensor)
    copy.ClearField("name")
    copy.ClearField("doc_string")
    text: bytes = copy.SerializeToString(deterministic=True)
    return text
