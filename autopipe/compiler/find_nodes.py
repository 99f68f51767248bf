"""Find the nodes of some kinds in TIR or Relax code."""

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
