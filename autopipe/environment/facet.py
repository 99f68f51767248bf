"""The parts of the outside world that a stage may read, and what they say."""

from collections.abc import Mapping
from enum import StrEnum


class Facet(StrEnum):
    """A part of the outside world a stage may read; each one read enters the key."""

    TVM = "tvm"
    """Versions of tvm, tvm-ffi and LLVM."""
    FRONTEND = "frontend"
    """Versions of the libraries that read and clean up model files."""
    TARGET = "target"
    """The resolved target: kind, mcpu, mattr, mtriple, num_cores, and hardware: cache sizes and
    what the user states; never `native`."""
    DEVICE = "device"
    """The machine that measures."""
    TOOLCHAIN = "toolchain"
    """The linker that makes the shared library."""
    REFERENCE = "reference"
    """Versions of the runtimes that a build is compared with."""
    LIBRARIES = "libraries"
    """Versions of the libraries that may compute ops."""
    PACKAGES = "packages"
    """Versions of autopipe, and of the Python packages that no other facet tells of."""
    EXTENSIONS = "extensions"
    """Versions of the packages that register engines, templates or implementations."""
    TEMPLATES = "templates"
    """Versions of the schedule templates, ours and those of other packages."""


Facts = Mapping[Facet, Mapping[str, object]]
"""What the facets say about the world outside."""
