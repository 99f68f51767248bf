"""Find, load, link and copy the libraries that generated code calls."""

import ctypes
import shutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

import tvm

from autopipe.errors import StageError
from autopipe.libraries import limit_library_threads, require_library
from autopipe.libraries.library import Library

ATTRIBUTE: Final = "autopipe.library"
"""Attribute of PrimFuncs that call a library: its name and version."""


STRIPPED: Final = "-Wl,--strip-debug"
"""The option of the linker that leaves debug information out. Names of functions stay: profilers
show them, and code inspection reads them."""


def format_label(library: Library) -> str:
    """Return the name of a library with its version. Both belong to every measurement of it."""
    return f"{library.name} {library.version() or 'of TVM'}"


def find_libraries(module: tvm.IRModule) -> tuple[Library, ...]:
    """Return the libraries that the functions of a module call, by name.

    Raises SetupError for a library that is not installed, StageError if another version is
    installed than the schedule was made with.
    """
    attributes = (function.attrs or {} for _, function in module.functions_items())
    labels = {str(attrs[ATTRIBUTE]) for attrs in attributes if ATTRIBUTE in attrs}
    libraries = [require_library(label.split()[0]) for label in sorted(labels)]
    for label, library in zip(sorted(labels), libraries, strict=True):
        if format_label(library) != label:
            raise StageError(f"scheduled for {label}, installed is {format_label(library)}")
    return tuple(libraries)


def load_libraries(module: tvm.IRModule) -> None:
    """Load the libraries that a module calls, so that code compiled in this process finds them.

    Call it only in a process that does not fork afterwards, since a library may start threads.
    Raises the errors of `find_libraries`.
    """
    for library in find_libraries(module):
        _load_library(library.name)


def list_linker_options(libraries: Iterable[Library]) -> list[str]:
    """Return linker options that resolve libraries in the folder of `lib.so`, and only there.

    TVM names libraries before the object files that need them, and linkers drop such libraries; an
    option prevents that. The path is an RPATH, since LD_LIBRARY_PATH comes before a RUNPATH.
    """
    paths = [str(path) for library in libraries for path in _list_shared_objects(library)]
    if not paths:
        return []
    whole_libraries = ["-Wl,--push-state,--no-as-needed", *paths, "-Wl,--pop-state"]
    return [*whole_libraries, "-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN"]


def copy_libraries(libraries: Iterable[Library], folder: Path) -> None:
    """Copy the files of the libraries into the folder of `lib.so`."""
    for library in libraries:
        for name, path in library.located().items():
            shutil.copyfile(path, folder / name)


@cache
def _load_library(name: str) -> None:
    for path in _list_shared_objects(require_library(name)):
        with limit_library_threads():
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def _list_shared_objects(library: Library) -> list[Path]:
    """Return the path of the shared object of a library; empty if it has no files."""
    return list(library.located().values())[:1]
