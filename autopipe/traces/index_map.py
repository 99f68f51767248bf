"""Index maps: the only expressions that a trace may hold, such as the layout `(i, j) -> (j, i)`.

A trace holds one as a graph in TVM's JSON, which can describe any object of TVM. Only an `IndexMap`
of integers is accepted. Negative numbers and subtractions are refused, too: TVM would accept
`(i) -> (-i)`, and the kernel would write before its buffer.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from autopipe import foreign
from autopipe.traces.values import Check, allow_integer, allow_names, allow_text

_NODES: Final = 512
_SIZE: Final = 10_000
"""Maximum number of nodes, with shared nodes counted repeatedly, as TVM's visitors walk them."""

_LITERALS: Final[Mapping[str, Check]] = {
    "ffi.String": allow_text(r"[A-Za-z_][A-Za-z0-9_]{0,63}"),
    "int": allow_integer(0, (1 << 31) - 1),
}
"""Nodes that are literals."""

_TYPE: Final = ("ir.PrimType",)
_SPAN: Final = ("None",)
_OPERATORS: Final = {
    "prim.Add": "+", "prim.Mul": "*", "prim.FloorDiv": "//", "prim.FloorMod": "%",
}  # fmt: skip
_EXPRESSION: Final = ("ir.Var", "ir.IntImm", "prim.Cast", *_OPERATORS)
_FIELDS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "ir.PrimType": {"span": _SPAN},
    "ir.Var": {"span": _SPAN, "ty": _TYPE, "name": ("ffi.String",)},
    "ir.IntImm": {"span": _SPAN, "ty": _TYPE, "value": ("int",)},
    "prim.Cast": {"span": _SPAN, "ty": _TYPE, "value": _EXPRESSION},
    **{
        operator: {"span": _SPAN, "ty": _TYPE, "a": _EXPRESSION, "b": _EXPRESSION}
        for operator in _OPERATORS
    },
    "tirx.IndexMap": {
        "initial_indices": ("ffi.Array",),
        "final_indices": ("ffi.Array",),
        "inverse_index_map": ("None", "tirx.IndexMap"),
    },
}
"""Nodes with children: their fields, and the allowed kinds of these."""

_DTYPE: Final = allow_names("int32", "int64")
_VERSION: Final = allow_text(r"[\w.+-]{1,40}")


@lru_cache(maxsize=256)
def read_index_map(text: str) -> dict[str, Any]:
    """Parse and check an index map. Do not change the result, which is cached for repeated maps.

    Raises ValueError if the text is not exactly an index map.
    """
    graph = foreign.parse(text)
    if not isinstance(graph, dict) or not graph.keys() <= {"root_index", "nodes", "metadata"}:
        raise ValueError("no index map")
    if not _is_plain_metadata(graph.get("metadata", {})):
        raise ValueError("an index map with other metadata than TVM's version")
    nodes, root = graph.get("nodes"), graph.get("root_index")
    if not isinstance(nodes, list) or len(nodes) > _NODES:
        raise ValueError(f"an index map of no nodes, or of more than {_NODES}")
    sizes: list[int] = []
    for node in nodes:
        sizes.append(_check_node(node, nodes, sizes))
        if sizes[-1] > _SIZE:
            raise ValueError("an index map that is larger than any layout needs")
    if not _is_node_of(root, nodes, ("tirx.IndexMap",)):
        raise ValueError("an expression that is no index map")
    return graph


def has_inverse(graph: Mapping[str, Any]) -> bool:
    """Return whether a graph of `read_index_map` has an inverse map, which TVM does not check."""
    nodes = graph["nodes"]
    way_back = nodes[nodes[graph["root_index"]]["data"]["inverse_index_map"]]
    return bool(way_back["type"] != "None")


def format_index_map(graph: Mapping[str, Any]) -> str:
    """Format a graph of `read_index_map`, such as `(i, j) -> (j, i // 4, i % 4)`."""
    nodes = graph["nodes"]
    fields = nodes[graph["root_index"]]["data"]
    sides = [
        ", ".join(_format_expression(nodes, node) for node in nodes[fields[side]]["data"])
        for side in ("initial_indices", "final_indices")
    ]
    return " -> ".join(f"({side})" for side in sides)


def _format_expression(nodes: Sequence[Any], at: int) -> str:
    kind, data = nodes[at]["type"], nodes[at]["data"]
    if kind == "ir.Var":
        return str(nodes[data["name"]]["data"])
    if kind == "ir.IntImm":
        return str(nodes[data["value"]]["data"])
    if kind == "prim.Cast":
        return _format_expression(nodes, data["value"])
    sides = (_format_expression(nodes, data[side]) for side in ("a", "b"))
    return f" {_OPERATORS[kind]} ".join(f"({s})" if " " in s else s for s in sides)


def _is_plain_metadata(value: object) -> bool:
    return isinstance(value, dict) and all(
        key == "tvm_version" and _VERSION(version) for key, version in value.items()
    )


def _check_node(node: object, nodes: Sequence[Any], sizes: Sequence[int]) -> int:
    """Return the size of a node, whose fields are earlier nodes. Raises ValueError."""
    kind = node.get("type") if isinstance(node, dict) else None
    if not isinstance(node, dict) or not isinstance(kind, str):
        raise ValueError("an index map with a node of no type")  # noqa: TRY004 - as the others
    before, data = nodes[: len(sizes)], node.get("data")
    if kind == "None" and node.keys() == {"type"}:
        return 1
    if node.keys() == {"type", "data"}:
        if kind in _LITERALS and _LITERALS[kind](data):
            return 1
        if kind == "ffi.Array" and isinstance(data, list):
            return _check_children(data, before, sizes, _EXPRESSION)
        if kind in _FIELDS and isinstance(data, dict):
            return _check_fields(kind, data, before, sizes)
    raise ValueError(f"an index map with {kind[:40]!r} in it")


def _check_fields(
    kind: str, data: Mapping[str, object], before: Sequence[Any], sizes: Sequence[int]
) -> int:
    fields = _FIELDS[kind]
    extra = {"dtype"} if kind == "ir.PrimType" else set()
    if data.keys() != fields.keys() | extra or not all(_DTYPE(data[field]) for field in extra):
        raise ValueError(f"an index map with another {kind} than of whole numbers")
    return 1 + sum(
        _check_children([data[field]], before, sizes, allowed) for field, allowed in fields.items()
    )


def _check_children(
    places: Sequence[object],
    before: Sequence[Any],
    sizes: Sequence[int],
    allowed_kinds: Sequence[str],
) -> int:
    if not all(_is_node_of(place, before, allowed_kinds) for place in places):
        raise ValueError("an index map whose nodes do not fit each other")
    return 1 + sum(sizes[place] for place in places)  # type: ignore[call-overload]


def _is_node_of(place: object, nodes: Sequence[Any], allowed_kinds: Sequence[str]) -> bool:
    return (
        type(place) is int and 0 <= place < len(nodes) and nodes[place].get("type") in allowed_kinds
    )
