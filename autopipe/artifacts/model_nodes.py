"""`nodes.json` of *import* and *build*: nodes of the model, and their kernel calls."""

from collections.abc import Sequence
from typing import ClassVar, Final

from autopipe.artifacts.document import ArtifactDocument, Part
from autopipe.artifacts.numbers import Amount, Count
from autopipe.artifacts.signature import NODES

PACKED: Final = "_prepacked"
"""TVM's suffix of functions with packed weights."""


def name_kernel(symbol: str) -> str:
    """Return a kernel's name for messages: that of its function in the lowered module."""
    return symbol.removesuffix(PACKED)


def format_nodes(nodes: Sequence[str], *, added: bool = False) -> str:
    """Format the names of the model's nodes that a kernel computes, or was added for."""
    names = ", ".join(nodes) or "no node is known"
    return f"added for {names}" if added else names


class ModelNode(Part, frozen=True):
    """A node of the model's file."""

    name: str
    """Its name; for unnamed nodes operator and index, such as `Conv_12`."""
    op: str
    """Its operator."""
    outputs: tuple[str, ...] = ()
    """Names of its outputs, after which reference runtimes name nodes, too."""


class ModelNodes(ArtifactDocument, frozen=True):
    """The nodes of the model's file in order, those of inner graphs after their graph's."""

    FILE: ClassVar[str] = NODES

    nodes: tuple[ModelNode, ...]


class KernelCall(Part, frozen=True):
    """A call of a kernel in a function of the graph."""

    kernel: str
    """Symbol of the kernel in the library."""
    nodes: tuple[Count, ...]
    """Positions of the nodes that it computes; empty if unknown."""
    added: bool = False
    """Whether the compiler added it for these nodes, for a change of layout, say."""
    reads: tuple[Count, ...] = ()
    """Positions of earlier calls in the same function whose results it reads."""

    @property
    def function(self) -> str:
        """Return the name of its function in the module that tasks are extracted from."""
        return name_kernel(self.kernel)


class KernelFunction(Part, frozen=True):
    """A function of the graph: `main`, or a body of a loop or of a branch."""

    name: str
    calls: tuple[KernelCall, ...]
    """In the order of the function."""


class KernelWork(Part, frozen=True):
    """The work of one call of a kernel, known before it runs."""

    kernel: str
    flops: Amount
    """Floating-point operations; 0 with dynamic shapes."""


class LibraryNodes(Part, frozen=True):
    """The kernel calls of one library."""

    library: str
    """Name of the file."""
    functions: tuple[KernelFunction, ...]
    work: tuple[KernelWork, ...] = ()


class NodeMap(ModelNodes, frozen=True):
    """The map from kernel calls to nodes of the model."""

    libraries: tuple[LibraryNodes, ...]

    def named(self, library: str) -> LibraryNodes:
        """Return the calls of a library; empty if it is not listed."""
        return next(
            (one for one in self.libraries if one.library == library),
            LibraryNodes(library=library, functions=()),
        )
