"""Which workload a module is, whatever the model calls what is in it.

TVM writes a module as a list of nodes that name each other by their index. Names of variables come
from the model, so the same loops of two models are not the same text.
"""

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

_NAMES: Final = frozenset({("ir.Var", "name"), ("tirx.Var", "name")})
"""What may be called otherwise. Names of blocks stay: traces go by them."""

_NUMBERS: Final = frozenset({"data_alignment", "offset_factor", "ndim", "iter_type", "kind"})
"""Fields that hold a number itself, not the index of a node."""

_VARIABLES: Final = frozenset({"ir.Var", "tirx.Var", "tirx.SizeVar"})
"""Nodes that are more than what is in them: equal ones are still two."""


@lru_cache(maxsize=512)
def digest_module(module: str) -> str:
    """Digest a module's JSON without the names of its variables: sha256, 64 hex digits.

    What is no such JSON counts as it is written.
    """
    try:
        graph = json.loads(module)
        return _digest_root(graph["nodes"], graph["root_index"])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return _digest_json(["text", module])


def _digest_root(nodes: list[Any], root: int) -> str:
    """Digest each node from those that it names, which come before it."""
    digests: list[str] = []
    variables: list[str] = []
    for node in nodes:
        digest = _digest_json(_list_node_content(node, digests))
        if node["type"] in _VARIABLES:
            variables.append(digest)
            digest = _digest_json(["variable", len(variables)])
        digests.append(digest)
    return _digest_json([digests[root], variables])


def _list_node_content(node: Mapping[str, Any], digests: list[str]) -> list[object]:
    kind, data = node["type"], node.get("data")
    if isinstance(data, Mapping):
        names = (name for name in sorted(data) if (kind, name) not in _NAMES)
        return [kind, [[name, _replace_reference(name, data[name], digests)] for name in names]]
    if isinstance(data, list):
        return [kind, [_replace_reference("", item, digests) for item in data]]
    return [kind, data]


def _replace_reference(name: str, value: object, digests: list[str]) -> object:
    """Return the digest of the node that a value names, or the value itself."""
    if isinstance(value, bool) or not isinstance(value, int) or name in _NUMBERS:
        return value
    return digests[value] if 0 <= value < len(digests) else value


def _digest_json(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
