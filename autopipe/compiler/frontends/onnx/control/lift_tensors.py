"""Takes tensors out of the graphs inside nodes, so that weights lie in one place."""

from collections import Counter
from collections.abc import Iterator

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
)


def lift_tensors(graph: GraphProto) -> None:
    """Move all tensors of inner graphs to the outermost graph, equal ones under one name.

    A body may read what is around it, so that the model stays the same.
    """
    if has_control(graph):
        _Lifting(graph).into(graph)


class _Lifting:
    def __init__(self, graph: GraphProto) -> None:
        self._outer = graph
        self._names = Names(graph)
        self._there = {tensor.name: _read_content(tensor) for tensor in graph.initializer}
        others: Counter[str] = Counter()
        stored: dict[str, set[bytes]] = {}
        for inner in list_graphs(graph):
            others.update(value.name for value in inner.input)
            for node in inner.node:
                if inner is graph or read_constant(node) is None:
                    others.update(node.output)
            for tensor in _list_tensors(inner):
                stored.setdefault(tensor.name, set()).add(_read_content(tensor))
            if inner is not graph:
                others.update(value.name for value in inner.output)  # it is made in the body
        self._kept = {
            name for name, found in stored.items() if len(found) == 1 and not others[name]
        }
        self._made: dict[tuple[str, bytes], str] = {}

    def into(self, graph: GraphProto) -> None:
        """Lift the tensors of the bodies in a graph."""
        for node in graph.node:
            for inner in list_bodies(node):
                self.into(inner)
                self._lift_graph(inner)

    def _lift_graph(self, graph: GraphProto) -> None:
        moved = {tensor.name: self._place(tensor) for tensor in _list_tensors(graph)}
        del graph.initializer[:]
        for index, node in reversed(list(enumerate(graph.node))):
            if read_constant(node) is not None:
                del graph.node[index]
        for name in dict.fromkeys(value.name for value in graph.output if value.name in moved):
            # a result has to be computed in the body
            inside = self._names.fresh(name)
            for node in graph.node:
                redirect_inputs(node, {name: inside})
            graph.node.append(helper.make_node("Identity", [inside], [name]))
            moved[inside] = moved.pop(name)
        rename_captured(graph, moved)

    def _place(self, tensor: TensorProto) -> str:
        """Put a tensor into the outermost graph, if it is not there, and return its name there."""
        content = _read_content(tensor)
        if tensor.name in self._kept:
            name = str(tensor.name)
        else:
            key = (tensor.name, content)
            name = self._made.get(key) or self._names.fresh(tensor.name)
            self._made[key] = name
        if name not in self._there:
            self._there[name] = content
            copy = self._outer.initializer.add()
            copy.CopyFrom(tensor)
            copy.name = name
        return name


def _list_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Yield the tensors of a graph, each under its name there."""
    yield from graph.initializer
    for node in graph.node:
        if (tensor := read_constant(node)) is not None:
            yield tensor


def _read_content(tensor: TensorProto) -> bytes:
    """Return what a tensor holds, without its name."""
    copy = type(tensor)()
    copy.CopyFrom(tensor)
    copy.ClearField("name")
    copy.ClearField("doc_string")
    text: bytes = copy.SerializeToString(deterministic=True)
    return text
