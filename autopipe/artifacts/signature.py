"""How a library is called: what is known of it without loading it."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import PositiveInt, StringConstraints

from autopipe.config.dimension import Dimension, DimensionName, Sizes
from autopipe.config.frozen import Frozen, Sparse
from autopipe.config.model import DType
from autopipe.tasks.tensor import Tensor


class Port(Tensor, Sparse, frozen=True):
    """An input or output of a model."""

    ADDED: ClassVar[frozenset[str]] = frozenset({"dimensions"})

    name: str
    """The model's own name for it."""
    dtype: DType
    """Element type; one that numpy has."""
    dimensions: tuple[str, ...] = ()
    """Of an input with open sizes, the name of each dimension; "" where the size is fixed."""

    def at(self, sizes: Sizes) -> "Port":
        """Return the same input at certain sizes."""
        names = self.dimensions or ("",) * len(self.shape)
        shape = tuple(
            sizes[name] if name else size for name, size in zip(names, self.shape, strict=True)
        )
        return self.model_copy(update={"shape": shape, "dimensions": ()})


LIBRARY: Final = "lib.so"
"""The library of a build, or with open sizes that for every size."""


class Entry(Frozen, frozen=True):
    """A library that is made for certain sizes."""

    library: Annotated[str, StringConstraints(pattern=r"^lib\.[0-7]\.so$")]
    """The file."""
    sizes: dict[DimensionName, PositiveInt]
    """The size of each dimension."""
    weights: tuple[str, ...]
    """Names of its weights, in call order."""


class Signature(Sparse, frozen=True):
    """What a library must be called with, and what it gives back."""

    ADDED: ClassVar[frozenset[str]] = frozenset({"dimensions", "entries"})

    inputs: tuple[Port, ...]
    """Inputs, in call order."""
    outputs: tuple[Port, ...]
    """Outputs, in the order they are returned."""
    weights: tuple[str, ...]
    """Names of the weights, in call order after the inputs."""
    threads: PositiveInt
    """Threads the library was tuned for."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where its kernels run."""
    dimensions: dict[DimensionName, Dimension] = {}
    """Sizes that are known only when it is called. After the inputs, a library takes the number of
    multiples of each."""
    entries: tuple[Entry, ...] = ()
    """Libraries for likely sizes; `lib.so` serves every other."""

    def at(self, sizes: Sizes) -> tuple[Port, ...]:
        """Return the inputs at certain sizes."""
        return tuple(port.at(sizes) for port in self.inputs)
