"""`nodes.json` of *import* and *build*: nodes of the model, and the kernel calls made of them."""

from typing import ClassVar, Final

from autopipe.artifacts.document import ArtifactDocument, Part
from autopipe.artifacts.numbers import Amount, Count

PACKED: Final = "_prepacked"
"""What TVM adds to the name of a function whose weights it has laid out otherwise."""


def name_kernel(symbol: str) -> str:
    """Return a kernel's name for people: that of its function in the module tasks are taken of."""
    return symbol.removesuffix(PACKED)


class ModelNode(Part, frozen=True):
    """A node of the model's file."""

    name: str
    """Its name; `Conv_12` of one without, by its operator and position among these."""
    op: str
    """Its operator."""
    outputs: tuple[str, ...] = ()
    """Names of the values that it makes, after which reference runtimes call nodes, too."""


class ModelNodes(ArtifactDocument, frozen=True):
    """The nodes of the model's file, in its order, those of inner graphs behind their graph's."""

    FILE: ClassVar[str] = "nodes.json"

    nodes: tuple[ModelNode, ...]


class KernelCall(Part, frozen=True):
    """A call of a kernel in a function of the graph."""

    kernel: str
    """Symbol of the kernel in the library."""
    nodes: tuple[Count, ...]
    """Positions of the nodes that it computes; none where they are not known."""
    added: bool = False
    """Whether the compiler added it for these nodes, as where a layout changes."""
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
    """What one call of a kernel does, as far as it is known before it runs."""

    kernel: str
    flops: Amount
    """Floating-point operations; 0 where sizes are open."""


class LibraryNodes(Part, frozen=True):
    """The kernel calls of one library."""

    library: str
    """Name of the file."""
    functions: tuple[KernelFunction, ...]
    work: tuple[KernelWork, ...] = ()


class NodeMap(ModelNodes, frozen=True):
    """The way back from kernel calls to nodes of the model."""

    libraries: tuple[LibraryNodes, ...]

    def named(self, library: str) -> LibraryNodes:
        """Return the calls of a library; none where it is not listed."""
        return next(
            (one for one in self.libraries if one.library == library),
            LibraryNodes(library=library, functions=()),
        )
