"""The description of a library: the ops it takes, its interface, and the files to ship.

It needs no TVM, so that configuration, keys and packages can use it; `schedules` generates the
call. TVM's BYOC, patterns on the Relax graph, decides before there are tasks; patterns on the op
information of a task leave the choice to measurements.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from autopipe.errors import SetupError
from autopipe.host.distributions import find_installed_version

Shape = tuple[int | None, ...]
"""Sizes of a tensor; None fits any."""


class Pattern(NamedTuple):
    """A pattern of ops that a library takes: an op has to match all fields."""

    op: str
    """Glob over the op's name."""
    attributes: Mapping[str, object] | None = None
    """Required values of attributes, as in the op information."""
    layout: str | None = None
    """Layout of the data."""
    shapes: Mapping[int, Shape] | None = None
    """Shapes of arguments, by position."""
    dtypes: tuple[str, ...] = ("float32",)
    """Allowed dtypes; all arguments and outputs have the same one."""

    def names(self, op: str, attributes: Mapping[str, object], layout: str | None) -> bool:
        """Return whether name, attributes and layout of an op match."""
        attribute_values = self.attributes or {}
        return (
            fnmatchcase(op, self.op)
            and all(attributes.get(name) == value for name, value in attribute_values.items())
            and self.layout in (None, layout)
        )

    def holds(self, shapes: Mapping[int, tuple[int, ...]]) -> bool:
        """Return whether the shapes of an op's arguments, by position, match."""
        return all(
            position in shapes and _is_shape_match(wanted, shapes[position])
            for position, wanted in (self.shapes or {}).items()
        )


class CBlas(NamedTuple):
    """A library that is called through the C interface of BLAS, row-major.

    It is called from TVM's threads, each for a part of the product, and runs single-threaded, as
    two thread pools would compete for the same cores.
    """

    gemm: Mapping[str, str]
    """The symbol of the matrix product, by dtype."""
    threads: str
    """The symbol of the `void (int)` function that sets the number of threads."""
    environment: Mapping[str, str]
    """Variables that prevent it from starting threads, and allocating their memory, when loaded."""


class Packed(NamedTuple):
    """A library that TVM's runtime wraps: `function(a, b, out, transposed a, transposed b)`."""

    function: str
    """Its name in TVM's registry."""


class LibraryFile(NamedTuple):
    """A file of an installed distribution."""

    path: str
    """Its path in the distribution, or the end of it; the library itself is the first one."""
    name: str
    """Its name beside `lib.so`: of a shared library its soname."""


class Library(NamedTuple):
    """A library and its ops; whether it is installed is checked at each call."""

    name: str
    """Name of the implementation in YAML, records and reports."""
    takes: tuple[Pattern, ...]
    """The ops that it computes; they have to be sums of products of two operands."""
    interface: CBlas | Packed
    """How it is called."""
    least: int
    """Multiply-adds below which a call cannot be profitable."""
    device: str = "cpu"
    """Device of its kernels, by the name of the backend."""
    distribution: str | None = None
    """The distribution that contains it; None if it is part of TVM's wheel, or of no wheel."""
    extra: str | None = None
    """The extra of autopipe that installs it."""
    files: tuple[LibraryFile, ...] = ()
    """The files to link and ship: the shared library first, then its licence."""

    def version(self) -> str | None:
        """Return the installed version, or None."""
        return find_installed_version(self.distribution) if self.distribution else None

    def missing(self) -> str:
        """Format the message that it is not installed, with the remedy."""
        if self.distribution is None:
            return f"{self.name} is not part of this TVM"
        return f"{self.name} is not installed: pip install 'autopipe[{self.extra}]'"

    def located(self) -> dict[str, Path]:
        """Return the paths of its files by shipped name; empty for libraries in TVM's wheel.

        Raises SetupError if one is missing.
        """
        if self.distribution is None:
            return {}
        if self.version() is None:
            raise SetupError(self.missing())
        distribution_files = metadata.files(self.distribution) or []
        paths_by_name = {}
        for file in self.files:
            paths = [
                Path(str(entry.locate()))
                for entry in distribution_files
                if str(entry).endswith(file.path)
            ]
            if not paths or not paths[0].is_file():
                raise SetupError(
                    f"{self.distribution} {self.version()} has no {file.path}: "
                    f"pip install --force-reinstall {self.distribution}"
                )
            paths_by_name[file.name] = paths[0]
        return paths_by_name


def _is_shape_match(pattern: Shape, shape: tuple[int, ...]) -> bool:
    return len(pattern) == len(shape) and all(
        size in (None, found) for size, found in zip(pattern, shape, strict=True)
    )
