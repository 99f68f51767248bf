"""Find nodes in TIR or Relax code, by kind or by identity."""

from collections.abc import Iterable
from typing import Any

from tvm.ir import TensorLoad
from tvm_ffi import structural_walk


def find_nodes(root: Any, *kinds: type | tuple[type, ...]) -> list[Any]:  # noqa: ANN401 - any code
    """Return the nodes of some kinds in code, all of the first kind first."""
    nodes: list[Any] = []
    for kind in kinds:
        structural_walk(root, (kind, nodes.append))
    return nodes


def list_loads(root: Any) -> list[TensorLoad]:  # noqa: ANN401 - any code
    """List the loads in TIR in order of their appearance, including those in indices."""
    return find_nodes(root, TensorLoad)


def is_among(node: Any, nodes: Iterable[Any]) -> bool:  # noqa: ANN401 - any code
    """Tell whether a node is one of some nodes, by identity."""
    return any(map(node.same_as, nodes))
