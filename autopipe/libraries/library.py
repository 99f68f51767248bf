"""What a library is: which ops it takes, what is called, and what has to be shipped with it.

Declared without TVM, so that configuration, keys and packages know it; `schedules` writes the call.
TVM's own way, patterns on the Relax graph (BYOC), decides before there are tasks; patterns on the
op information of a task leave both ways open until they are timed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import metadata
from pathlib import Path

from autopipe.errors import SetupError

Shape = tuple[int | None, ...]
"""Sizes of a tensor; None fits any."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Describes ops that a library takes: an op has to fit everything that is given here."""

    op: str
    """Glob over the op's name."""
    attributes: Mapping[str, object] | None = None
    """Values that attributes must have, as in the op information."""
    layout: str | None = None
    """Layout of the data."""
    shapes: Mapping[int, Shape] | None = None
    """Shapes of arguments, by position."""
    dtypes: tuple[str, ...] = ("float32",)
    """The element type that all arguments and outputs have is one of these."""

    def names(self, op: str, attributes: Mapping[str, object], layout: str | None) -> bool:
        """Tell whether name, attributes and layout of an op fit."""
        wanted = self.attributes or {}
        return (
            fnmatchcase(op, self.op)
            and all(attributes.get(name) == value for name, value in wanted.items())
            and self.layout in (None, layout)
        )

    def holds(self, shapes: Mapping[int, tuple[int, ...]]) -> bool:
        """Tell whether the shapes of an op's arguments fit, by position."""
        return all(
            position in shapes and _is_shape_match(wanted, shapes[position])
            for position, wanted in (self.shapes or {}).items()
        )


@dataclass(frozen=True, slots=True)
class CBlas:
    """A library that is called through the C interface of BLAS, row-major.

    It is called from TVM's threads, each for a part of the product, and runs single-threaded
    itself: two pools of threads would fight for the same cores.
    """

    gemm: Mapping[str, str]
    """The symbol of the matrix product, by element type."""
    threads: str
    """The symbol of `void (int)` that sets how many threads a call takes."""
    environment: Mapping[str, str]
    """What keeps it from starting threads when it is loaded, and from memory for each of them."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A library that TVM's runtime wraps: `function(a, b, out, transposed a, transposed b)`."""

    function: str
    """Its name in TVM's registry."""


@dataclass(frozen=True, slots=True)
class LibraryFile:
    """A file of an installed distribution."""

    path: str
    """Its path in the distribution, or the end of it; the library itself is the first one."""
    name: str
    """Its name beside `lib.so`: of a shared library its soname."""


@dataclass(frozen=True, slots=True)
class Library:
    """A library and what it takes. Values are frozen; whether it is there is asked each time."""

    name: str
    """Name of the implementation in YAML, records and reports."""
    takes: tuple[Pattern, ...]
    """The ops that it computes; they have to be sums of products of two operands."""
    interface: CBlas | Packed
    """How it is called."""
    least: int
    """Multiply-adds below which a call cannot pay."""
    device: str = "cpu"
    """Where it runs, as a backend names it."""
    distribution: str | None = None
    """The distribution that has it; None if it is part of TVM's wheel, or of no wheel."""
    extra: str | None = None
    """The extra of autopipe that installs it."""
    files: tuple[LibraryFile, ...] = ()
    """What is linked and shipped: the shared library first, then its licence."""

    def version(self) -> str | None:
        """Return the version that is installed, or None if there is none."""
        return _find_installed_version(self.distribution) if self.distribution else None

    def missing(self) -> str:
        """Say that it is not installed, and what to do."""
        if self.distribution is None:
            return f"{self.name} is not part of this TVM"
        return f"{self.name} is not installed: pip install 'autopipe[{self.extra}]'"

    def located(self) -> dict[str, Path]:
        """Return where its files are, by the names they are shipped under; TVM's own have none.

        Raises SetupError where one is missing.
        """
        if self.distribution is None:
            return {}
        if self.version() is None:
            raise SetupError(self.missing())
        listed = metadata.files(self.distribution) or []
        found = {}
        for file in self.files:
            paths = [
                Path(str(entry.locate())) for entry in listed if str(entry).endswith(file.path)
            ]
            if not paths or not paths[0].is_file():
                raise SetupError(
                    f"{self.distribution} {self.version()} has no {file.path}: "
                    f"pip install --force-reinstall {self.distribution}"
                )
            found[file.name] = paths[0]
        return found


def _is_shape_match(wanted: Shape, shape: tuple[int, ...]) -> bool:
    return len(wanted) == len(shape) and all(
        size in (None, found) for size, found in zip(wanted, shape, strict=True)
    )


@cache
def _find_installed_version(distribution: str) -> str | None:
    """Return the version of a distribution, whose metadata takes 10 ms to read, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
