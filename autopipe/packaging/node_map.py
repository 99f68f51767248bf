"""Read which nodes of the model the kernels of a package compute."""

from typing import Final

from autopipe import foreign
from autopipe.artifacts.document import parse_document
from autopipe.artifacts.model_nodes import NodeMap
from autopipe.artifacts.signature import NODES
from autopipe.errors import PackageError
from autopipe.packaging.contents import PackageContents

_NO_NODES: Final = NodeMap(nodes=(), libraries=())


def read_node_map(contents: PackageContents, prefix: str) -> NodeMap:
    """Read the node map of a build in a package; empty if the package has none.

    Raises PackageError, also for a wrong digest.
    """
    name = prefix + NODES
    if name not in contents.members:
        return _NO_NODES
    contents.extract(name)
    try:
        return parse_document(NodeMap, contents.read(name))
    except foreign.MalformedError as error:
        raise PackageError(f"{name}: {error}") from None
