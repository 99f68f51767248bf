"""The facets of the environment that a stage may read."""

from collections.abc import Mapping
from enum import StrEnum


class Facet(StrEnum):
    """A part of the environment; those that a stage reads enter its key."""

    TVM = "tvm"
    """Versions of tvm, tvm-ffi and LLVM."""
    FRONTEND = "frontend"
    """Versions of the libraries that read and clean up model files."""
    TARGET = "target"
    """The resolved target: kind, mcpu, mattr, mtriple, num_cores, and hardware: cache sizes and
    user settings; never `native`."""
    DEVICE = "device"
    """The machine that measures."""
    TOOLCHAIN = "toolchain"
    """The linker of the shared library."""
    REFERENCE = "reference"
    """Versions of the runtimes that a build is compared with."""
    LIBRARIES = "libraries"
    """Versions of the libraries that may compute ops."""
    PACKAGES = "packages"
    """Versions of autopipe, and of the Python packages that are in no other facet."""
    EXTENSIONS = "extensions"
    """Versions of the packages that register engines, templates or implementations."""
    TEMPLATES = "templates"
    """Versions of the schedule templates, ours and those of other packages."""


Facts = Mapping[Facet, Mapping[str, object]]
"""Facts of the environment, by facet."""
