"""The compiler that links libraries: which one it is, and what it is known by.

A library for another machine needs a linker that knows that machine. The pipeline file names it
(`target.linker`); what enters keys is its version, and never where it lies.
"""

import hashlib
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autopipe.errors import SetupError
from autopipe.processes.variables import select_variables

if TYPE_CHECKING:
    from autopipe.config.target import Target

_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}

_TAKEN: Final = (
    "crti.o", "crtn.o", "crtbeginS.o", "crtendS.o", "libc.so", "libc.so.6", "libm.so.6", "libgcc.a",
)  # fmt: skip
"""What a linker may take from a sysroot for a library that computes."""

_PATIENCE: Final = 20.0
"""Seconds after which a linker that does not say its version is none."""


@dataclass(frozen=True, slots=True)
class Linker:
    """The compiler that a pipeline file names to link with."""

    path: str
    sysroot: str | None = None

    @classmethod
    def of(cls, name: str | None, sysroot: str | None) -> "Linker | None":
        """Return the one of that name, None for null. Raises SetupError if it is not here."""
        return cls(find_named_linker(name), sysroot) if name is not None else None

    @property
    def options(self) -> list[str]:
        """What it is told each time."""
        return [f"--sysroot={self.sysroot}"] if self.sysroot is not None else []


def find_architecture(triple: str | None) -> str:
    """Return the architecture that a triple names, such as `x86_64`; of null, this machine's."""
    name = triple.split("-", 1)[0] if triple else platform.machine()
    return _MACHINES.get(name.lower(), name.lower())


def is_foreign(triple: str | None) -> bool:
    """Tell whether code for a triple is for another kind of machine than this one."""
    return find_architecture(triple) != find_architecture(None)


def find_linker() -> str | None:
    """Return the path of the first compiler there is, in the order in which TVM looks."""
    names = ["g++", "gcc", "clang++", "clang", "c++", "cc"]
    chosen = os.environ.get("CXX") or os.environ.get("CC")
    return next(filter(None, map(shutil.which, [chosen] if chosen else names)), None)


def require_linker() -> str:
    """Return the path of the compiler that links for this machine. Raises SetupError."""
    found = find_linker()
    if found is None:
        chosen = os.environ.get("CXX") or os.environ.get("CC")
        raise SetupError(
            f"{chosen}, which CXX or CC names, is not on the PATH; libraries are linked by it"
            if chosen
            else "there is no C++ compiler on the PATH, which libraries are linked by; install g++"
        )
    return found


def find_named_linker(name: str) -> str:
    """Return the path of the linker that a pipeline file names. Raises SetupError."""
    found = shutil.which(name)
    if found is None:
        where = "is no program" if name.startswith("/") else "is not on the PATH"
        raise SetupError(f"target.linker: {name} {where}; install it, or name another one")
    return found


def describe_toolchain(target: "Target") -> dict[str, object]:
    """Name the linker by its version, and a sysroot by what a linker takes from it.

    Raises SetupError if the linker that the target names is not here, or is none.
    """
    if target.linker is None:
        path = find_linker()
        return {"linker": path and _read_linker_version(path)}
    path = find_named_linker(target.linker)
    version = _read_linker_version(path)
    if not version:
        raise SetupError(f"target.linker: {path} does not say its version, as linkers do")
    if target.sysroot is None:
        return {"linker": version}
    return {"linker": version, "sysroot": _digest_sysroot(path, target.sysroot)}


@cache
def _read_linker_version(path: str) -> str:
    return _run_linker(path, "--version").split("\n", 1)[0]


@cache
def _digest_sysroot(path: str, sysroot: str) -> str:
    """Digest what the linker finds below a sysroot: sha256, 16 hex digits. Raises SetupError."""
    digest, folder = hashlib.sha256(), Path(sysroot).resolve()
    found = 0
    for name in _TAKEN:
        said = Path(_run_linker(path, f"--sysroot={sysroot}", f"-print-file-name={name}").strip())
        if said.is_absolute() and said.is_file() and said.resolve().is_relative_to(folder):
            digest.update(f"{name}\0{hashlib.sha256(said.read_bytes()).hexdigest()}\n".encode())
            found += 1
    if not found:
        raise SetupError(f"target.sysroot: {path} finds no C library in {sysroot}")
    return digest.hexdigest()[:16]


def _run_linker(path: str, *options: str) -> str:
    """Return what a linker prints; nothing where it does not end, or cannot be started."""
    try:
        done = subprocess.run(  # noqa: S603 - the user's linker
            [path, *options], capture_output=True, check=False, timeout=_PATIENCE,
            stdin=subprocess.DEVNULL, env=select_variables(),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")
