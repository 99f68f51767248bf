"""Tasks as the manifest of a package lists them, and the nodes that their kernels compute."""

from typing import Final

from pydantic import BaseModel, ValidationError

from autopipe import foreign
from autopipe.artifacts.document import parse_document
from autopipe.artifacts.model_nodes import NodeMap
from autopipe.artifacts.numbers import Amount, Count
from autopipe.artifacts.signature import NODES
from autopipe.config.problem import format_first_error
from autopipe.errors import PackageError
from autopipe.packaging.contents import PackageContents
from autopipe.packaging.manifest import Needs

_NO_NODES: Final = NodeMap(nodes=(), libraries=())


class PackagedTask(BaseModel, frozen=True):
    """A task in a manifest."""

    name: str
    workload: str
    calls: Count
    engine: str
    implementation: str
    seconds: Amount | None = None


def read_tasks(needs: Needs) -> tuple[PackagedTask, ...]:
    """Parse the tasks of a build in a package. Raises PackageError."""
    try:
        return tuple(map(PackagedTask.model_validate, needs.tasks))
    except ValidationError as error:
        raise PackageError(
            f"the manifest does not fit: tasks: {format_first_error(error)}"
        ) from None


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
