"""The compiler that links libraries: its path, and its version for keys.

A library for another machine needs a linker for that machine. The pipeline file names it
(`target.linker`); keys contain its version, not its path.
"""

import hashlib
import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from autopipe.errors import SetupError
from autopipe.processes.variables import select_variables

if TYPE_CHECKING:
    from autopipe.config.target import Target

_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}

_TAKEN: Final = (
    "crti.o", "crtn.o", "crtbeginS.o", "crtendS.o", "libc.so", "libc.so.6", "libm.so.6", "libgcc.a",
)  # fmt: skip
"""Files of a sysroot that a linker may use for a library."""

_PATIENCE: Final = 20.0
"""Time limit of `--version` in seconds."""


class Linker(NamedTuple):
    """The compiler that a pipeline file names to link with."""

    path: str
    sysroot: str | None = None

    @classmethod
    def of(cls, name: str | None, sysroot: str | None) -> "Linker | None":
        """Return the linker of a name, None for None. Raises SetupError if it is not found."""
        return cls(find_named_linker(name), sysroot) if name is not None else None

    @property
    def options(self) -> list[str]:
        """Options of every call."""
        return [f"--sysroot={self.sysroot}"] if self.sysroot is not None else []


def find_architecture(triple: str | None) -> str:
    """Return the architecture of a triple, such as `x86_64`; that of this machine for None."""
    name = triple.split("-", 1)[0] if triple else platform.machine()
    return _MACHINES.get(name.lower(), name.lower())


def is_foreign(triple: str | None) -> bool:
    """Return whether a triple is for another architecture than that of this machine."""
    return find_architecture(triple) != find_architecture(None)


def find_linker() -> str | None:
    """Return the path of the first available compiler, in TVM's order."""
    names = ["g++", "gcc", "clang++", "clang", "c++", "cc"]
    configured = os.environ.get("CXX") or os.environ.get("CC")
    return next(filter(None, map(shutil.which, [configured] if configured else names)), None)


def require_linker() -> str:
    """Return the path of the compiler that links for this machine. Raises SetupError."""
    path = find_linker()
    if path is None:
        configured = os.environ.get("CXX") or os.environ.get("CC")
        raise SetupError(
            f"{configured}, which CXX or CC names, is not on the PATH; libraries are linked by it"
            if configured
            else "there is no C++ compiler on the PATH, which libraries are linked by; install g++"
        )
    return path


def find_named_linker(name: str) -> str:
    """Return the path of the linker that a pipeline file names. Raises SetupError."""
    path = shutil.which(name)
    if path is None:
        where = "is no program" if name.startswith("/") else "is not on the PATH"
        raise SetupError(f"target.linker: {name} {where}; install it, or name another one")
    return path


def describe_toolchain(target: "Target") -> dict[str, object]:
    """Describe the linker by its version, and a sysroot by a digest of the files it uses.

    Raises SetupError if the linker of the target is not found, or is no linker.
    """
    if target.linker is None:
        path = find_linker()
        return {"linker": path and _read_linker_version(path)}
    path = find_named_linker(target.linker)
    version = _read_linker_version(path)
    if not version:
        raise SetupError(f"target.linker: {path} does not print its version, as linkers do")
    if target.sysroot is None:
        return {"linker": version}
    return {"linker": version, "sysroot": _digest_sysroot(path, target.sysroot)}


@cache
def _read_linker_version(path: str) -> str:
    return _run_linker(path, "--version").split("\n", 1)[0]


@cache
def _digest_sysroot(path: str, sysroot: str) -> str:
    """Digest the files of a sysroot: sha256, 16 hex digits. Raises SetupError."""
    digest, folder = hashlib.sha256(), Path(sysroot).resolve()
    file_count = 0
    for name in _TAKEN:
        file = Path(_run_linker(path, f"--sysroot={sysroot}", f"-print-file-name={name}").strip())
        if file.is_absolute() and file.is_file() and file.resolve().is_relative_to(folder):
            digest.update(f"{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
            file_count += 1
    if not file_count:
        raise SetupError(f"target.sysroot: {path} finds no C library in {sysroot}")
    return digest.hexdigest()[:16]


def _run_linker(path: str, *options: str) -> str:
    """Return the output of a linker; empty if it does not end, or cannot be started."""
    try:
        completed = subprocess.run(  # noqa: S603 - the user's linker
            [path, *options], capture_output=True, check=False, timeout=_PATIENCE,
            stdin=subprocess.DEVNULL, env=select_variables(),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return completed.stdout.decode(errors="replace")
