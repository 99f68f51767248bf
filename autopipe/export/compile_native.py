"""Compiles the C library and the program `run` of an exported folder."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from autopipe.environment.toolchain import find_architecture
from autopipe.errors import SetupError, StageError
from autopipe.processes.variables import select_variables

SOURCES: Final = Path(__file__).parent / "native"
_LIBRARY: Final = (
    "error.c", "files.c", "sha256.c", "processor.c", "description.c", "runtime.c", "tvm.c",
    "limit.c", "instance.c", "loaded.c", "model.c",
)  # fmt: skip
_PROGRAM: Final = ("run.c", "npy.c", "self_test.c", "bench.c")
_OPTIONS: Final = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-g0")
_LINKED: Final = (
    "-lpthread", "-ldl", "-lm", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,-s", "-Wl,--build-id=none",
)  # fmt: skip
_PATIENCE: Final = 300.0
"""Seconds that a compiler may take."""
OLDEST_GLIBC: Final = "2.27"
"""The glibc that TVM's wheels need; binaries compiled with Zig need no later one."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler."""

    command: tuple[str, ...]


def find_compiler(machine: str) -> Compiler:
    """Return the C compiler to use for an architecture, such as `x86_64`.

    Zig, where the package `ziglang` is installed: it knows every architecture, and links for an
    old glibc, so that the folder runs on older systems than this one. Otherwise GCC for that
    architecture or, for that of this machine, its C compiler, `$CC` first. Raises SetupError if
    there is none.
    """
    if (spec := find_spec("ziglang")) is not None and spec.origin is not None:
        zig = Path(spec.origin).parent / "zig"
        return Compiler((str(zig), "cc", "-target", f"{machine}-linux-gnu.{OLDEST_GLIBC}"))
    configured = os.environ.get("CC")
    names = [configured] if configured else ["cc", "gcc", "clang"]
    if machine != find_architecture(None):
        names = [f"{machine}-linux-gnu-gcc"]
    for name in names:
        if path := shutil.which(name):
            return Compiler((path,))
    raise SetupError(
        f"exporting for {machine} takes a C compiler: none is on the PATH by the name "
        f"{' or '.join(names)}; install gcc, or pip install 'autopipe[export]'"
    )


def compile_library(compiler: Compiler, headers: Path, out: Path) -> None:
    """Compile `libautopipe.so`, which loads TVM's runtime when a model is opened.

    Args:
        compiler: The C compiler.
        headers: The folder of TVM's headers.
        out: The file to write.

    Raises StageError if the compiler fails.
    """
    _run_compiler(
        compiler,
        [
            *_OPTIONS, "-fPIC", "-shared", "-fvisibility=hidden", f"-I{headers}",
            *(str(SOURCES / name) for name in _LIBRARY), *_LINKED,
            "-Wl,-soname,libautopipe.so", f"-Wl,--version-script={SOURCES / 'autopipe.map'}",
            "-Wl,-Bsymbolic",  # of two copies in one process, each calls its own functions
            "-Wl,-z,defs", "-o", str(out),
        ],
    )  # fmt: skip


def compile_program(compiler: Compiler, headers: Path, out: Path) -> None:
    """Compile the program `run`, with the C library linked statically.

    So it can report a damaged library of the folder. Raises StageError if the compiler fails.
    """
    _run_compiler(
        compiler,
        [
            *_OPTIONS, "-fPIE", "-pie", f"-I{headers}",
            *(str(SOURCES / name) for name in (*_LIBRARY, *_PROGRAM)), *_LINKED, "-o", str(out),
        ],
    )  # fmt: skip


def _run_compiler(compiler: Compiler, options: Sequence[str]) -> None:
    command = [*compiler.command, *options]
    try:
        completed = subprocess.run(  # noqa: S603 - no shell, our own sources
            command, capture_output=True, text=True, timeout=_PATIENCE, check=False,
            stdin=subprocess.DEVNULL, env=select_variables(), errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StageError(f"compiling the C library failed: {error}") from None
    if completed.returncode:
        lines = completed.stderr.strip().splitlines() or ["no reason stated"]
        reason = next((line for line in lines if "error" in line), lines[-1])
        raise StageError(f"compiling the C library failed: {reason}")


def find_needed_version(path: Path, family: bytes) -> str:
    """Return the latest version of a family of symbols that a file needs, such as GLIBC's 2.27."""
    versions = re.findall(rb"\0" + family + rb"_([0-9]+(?:\.[0-9]+)+)(?=\0)", path.read_bytes())
    latest = max((tuple(map(int, version.split(b"."))) for version in versions), default=(0, 0))
    return ".".join(map(str, latest))
