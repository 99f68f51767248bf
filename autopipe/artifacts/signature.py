"""The signature of a library, which is known without loading it."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final, Literal, Self

from pydantic import Field, PositiveInt, StringConstraints, model_validator

from autopipe.config.dimension import (
    MOST_LIKELY,
    Dimension,
    DimensionName,
    OpenExtent,
    Sizes,
    evaluate_size,
    list_dimension_names,
)
from autopipe.config.frozen import Frozen
from autopipe.config.model import DType
from autopipe.config.names import DeviceName
from autopipe.tasks.tensor import Tensor

MOST_ELEMENTS: Final = 2**40
"""Maximum elements of a dynamic tensor, and upper limit of ranges."""


_Bound = Annotated[int, Field(ge=0, le=MOST_ELEMENTS)]


class Port(Tensor, frozen=True):
    """An input or output of a model."""

    name: str
    """The model's own name for it."""
    dtype: DType
    """A dtype of NumPy."""
    dimensions: tuple[OpenExtent | Literal[""], ...] = ()
    """Name or sum of names of each dynamic dimension; "" for static ones, and for data-dependent
    ones of an output."""
    ranges: tuple[tuple[_Bound, _Bound] | None, ...] = ()
    """Of an output, minimum and maximum of each data-dependent dimension; null for others, and for
    unbounded ones."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for per_axis in (self.dimensions, self.ranges):
            if per_axis and len(per_axis) != len(self.shape):
                raise ValueError(f"{self.name!r}: as many dimensions as sizes are needed")
        for size, name, ends in self._list_axes():
            if size >= 0 and (name or ends):
                raise ValueError(f"{self.name!r}: a size with a name or a range is open")
            if ends and (name or ends[0] > ends[1]):
                raise ValueError(
                    f"{self.name!r}: a range begins at its smallest size, without name"
                )
        return self

    def _list_axes(self) -> Iterator[tuple[int, str, tuple[int, int] | None]]:
        """Yield size, name and range of each dimension."""
        names = self.dimensions or ("",) * len(self.shape)
        ranges = self.ranges or (None,) * len(self.shape)
        return zip(self.shape, names, ranges, strict=True)

    @property
    def words(self) -> tuple[str, ...]:
        """Format each size: `8`, `batch`, `1 to 64`, or `?` for an unbounded data-dependent one."""
        return tuple(
            name or (f"{ends[0]} to {ends[1]}" if ends else "?" if size < 0 else str(size))
            for size, name, ends in self._list_axes()
        )

    def at(self, sizes: Sizes) -> "Port":
        """Return the same port at certain sizes."""
        shape = tuple(
            evaluate_size(name, sizes) if name else size for size, name, _ in self._list_axes()
        )
        return self.model_copy(update={"shape": shape, "dimensions": ()})

    def takes(self, shape: Sequence[int]) -> bool:
        """Return whether an array of a shape fits for some values of the named dimensions."""
        return len(shape) == len(self.shape) and all(
            given == size or (size < 0 and (ends is None or ends[0] <= given <= ends[1]))
            for given, (size, _, ends) in zip(shape, self._list_axes(), strict=True)
        )


LIBRARY: Final = "lib.so"
"""The library of a build, or with dynamic shapes that for every size."""
SIZED: Final = tuple(f"lib.{place}.so" for place in range(MOST_LIKELY))
"""Libraries for specialized sizes of a model with dynamic shapes."""
LIBRARIES: Final = (LIBRARY, *SIZED)
"""Names of all libraries that a build may have."""
NODES: Final = "nodes.json"
"""The map from kernel calls to nodes of the model; no run needs it."""
PREPARE: Final = "prepare_weights"
"""The function of a library that converts stored weights to those of `main`; it raises an error for
weights of another library. Without it, stored weights are passed unchanged."""

MAIN_INTO: Final = "main_into"
"""The variant of `main` with additional tensors for the outputs; a library with small outputs or
dynamic shapes has none."""


def number_weight(place: int) -> str:
    """Return the name of a weight by its position in the file of a build."""
    return f"w{place:05d}"


class SizedLibrary(Frozen, frozen=True):
    """A library for specialized sizes."""

    library: Annotated[str, StringConstraints(pattern=r"^lib\.[0-7]\.so$")]
    """The file."""
    sizes: dict[DimensionName, PositiveInt]
    """The size of each dimension."""
    weights: tuple[str, ...]
    """Names of its weights, in call order."""


class Signature(Frozen, frozen=True):
    """Inputs, outputs and weights of a library."""

    inputs: tuple[Port, ...]
    """Inputs, in call order."""
    outputs: tuple[Port, ...]
    """Outputs, in the order they are returned."""
    weights: tuple[str, ...]
    """Names of the weights, in call order after the inputs."""
    threads: PositiveInt
    """Threads that the library was tuned for."""
    device: DeviceName = "cpu"
    """Device of its kernels."""
    dimensions: dict[DimensionName, Dimension] = {}
    """Dynamic dimensions. After the inputs, a library takes the number of multiples of each, in the
    order of their names."""
    entries: tuple[SizedLibrary, ...] = ()
    """Libraries for specialized sizes; `lib.so` serves all others."""
    halves: tuple[str, ...] = ()
    """Names of weights that are stored as float16 and passed as float32."""

    @model_validator(mode="after")
    def _ports_consistent(self) -> Self:
        for port in self.inputs:
            if port.ranges or (port.dimensions and "?" in port.words):
                raise ValueError(f"input {port.name!r}: a size is open where it has a name")
        for port in self.outputs:
            names = {
                name
                for extent in port.dimensions
                if extent
                for name in list_dimension_names(extent)
            }
            if names - self.dimensions.keys():
                raise ValueError(f"output {port.name!r}: a dimension that no input has")
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        extents = {extent for port in self.inputs for extent in port.dimensions if extent}
        names = {name for extent in extents for name in list_dimension_names(extent)}
        if names != self.dimensions.keys():
            raise ValueError("dimensions: other names than those of the inputs")
        if names - extents:
            raise ValueError("dimensions: no input tells one of them")
        if len({entry.library for entry in self.entries}) < len(self.entries):
            raise ValueError("entries: a library is named twice")
        for entry in self.entries:
            if entry.sizes.keys() != self.dimensions.keys():
                raise ValueError(f"entries: {entry.library} has other dimensions")
            for name, size in entry.sizes.items():
                if reason := self.dimensions[name].refusal(size):
                    raise ValueError(f"entries: {entry.library}: {name} = {size} {reason}")
        return self

    def at(self, sizes: Sizes) -> tuple[Port, ...]:
        """Return the inputs at certain sizes."""
        return tuple(port.at(sizes) for port in self.inputs)
