"""Libraries that compute an op in place of generated code, one file each."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from autopipe.errors import SetupError
from autopipe.libraries.cublas import CUBLAS
from autopipe.libraries.library import CBlas, Library
from autopipe.libraries.openblas import OPENBLAS

LIBRARIES: Final[tuple[Library, ...]] = (OPENBLAS, CUBLAS)
"""All libraries, in the order in which they are offered."""


def find_library(name: str) -> Library | None:
    """Return the library of that name, or None if there is none."""
    return next((library for library in LIBRARIES if name == library.name), None)


def list_versions() -> dict[str, str]:
    """Return the versions of the libraries that are installed, by name."""
    versions = {library.name: library.version() for library in LIBRARIES}
    return {name: version for name, version in versions.items() if version is not None}


def list_shipped_files() -> tuple[str, ...]:
    """Return the names of all files that libraries may add to a package."""
    return tuple(file.name for library in LIBRARIES for file in library.files)


@contextmanager
def limit_library_threads() -> Iterator[None]:
    """Prevent libraries that are loaded inside the `with` block from starting threads.

    They are called from the threads of TVM.
    """
    interfaces = [library.interface for library in LIBRARIES]
    variables = {
        name: value
        for interface in interfaces
        if isinstance(interface, CBlas)
        for name, value in interface.environment.items()
    }
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def check_libraries(_argument: object = None, _emit: object = None) -> str:
    """Check that the files of installed libraries exist; return their versions as text.

    Raises SetupError if a file is missing. The parameters are those of a call in a child process.
    """
    versions = list_versions()
    for name in versions:
        require_library(name).located()
    absent = [
        library for library in LIBRARIES if library.distribution and library.name not in versions
    ]
    return ", ".join(
        [
            *(f"{name} {version}" for name, version in versions.items()),
            *(library.missing() for library in absent),
        ]
    )


def require_library(name: str) -> Library:
    """Return a library; whether TVM contains its own ones is not checked.

    Raises SetupError if it is not installed.
    """
    library = find_library(name)
    if library is None:
        raise SetupError(f"there is no library {name!r}")
    if library.distribution and library.version() is None:
        raise SetupError(library.missing())
    return library
