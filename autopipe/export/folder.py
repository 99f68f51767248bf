"""Exports a package: a folder with the model, TVM's runtime, a C library, a program and cases."""

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from autopipe.compiler.target import cpu
from autopipe.errors import ConfigError, PackageError, SetupError
from autopipe.export import cases, compile_native
from autopipe.export.description import DESCRIPTION, describe
from autopipe.export.weights import align
from autopipe.packaging.contents import PackageContents, opened
from autopipe.packaging.manifest import WEIGHTS, check_runtime
from autopipe.packaging.open import open_package

DIGESTS: Final = "SHA256SUMS"
REQUIREMENTS: Final = "REQUIREMENTS"

_RUNTIME: Final = {
    "tvm": ("libtvm_runtime.so", "libtvm_runtime_extra.so"),
    "tvm_ffi": ("libtvm_ffi.so",),
}
_COPIED: Final = {
    "autopipe.h": "include", "autopipe.hpp": "include", "autopipe_runtime.py": "python",
    "serve.py": "python",
    "autopipe.pc": "lib/pkgconfig", "autopipe-config.cmake": "lib/cmake/autopipe",
}  # fmt: skip
_DISTRIBUTIONS: Final = ("apache-tvm", "apache-tvm-ffi", "autopipe")


def export_package(package: Path, to: Path, given: Sequence[Path] = ()) -> Path:
    """Write the folder of a package; the same package and compiler write the same bytes.

    `given` are `.npz` files of inputs that become cases beside the drawn ones.
    Raises PackageError for a damaged package or one that this machine cannot run, ConfigError if
    the folder exists, SetupError without a C compiler, StageError if it fails.
    """
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ConfigError(f"--to {to}: exists; name a new folder")
    parent = to.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix=f".{to.name}-") as work:
        made = Path(work, "folder")
        made.mkdir()
        with opened(package) as contents:
            _write_folder(contents, made)
        signature = contents.manifest.needs.signature
        cases.write_cases(made / cases.CASES, signature, open_package(package), given)
        _write_digests(made)
        made.chmod(0o755)
        made.replace(to)
    return to


def _write_folder(contents: PackageContents, to: Path) -> None:
    needs = contents.manifest.needs
    if needs.signature.device != "cpu":
        raise ConfigError(
            f"a package for {needs.signature.device} is not exported: "
            "the folder has TVM's runtime for processors alone"
        )
    check_runtime(needs.runtime)
    if needs.processor.machine != (here := cpu.machine_of({})):
        raise PackageError(
            f"built for {needs.processor.machine}, and TVM's runtime here is for {here}"
        )
    for name in contents.manifest.files:
        if name != WEIGHTS:
            contents.extract(name, to / name)
    (to / "manifest.json").write_bytes(contents.read("manifest.json"))
    contents.agree()
    with tempfile.TemporaryDirectory(dir=to.parent) as work:
        stored = Path(work, WEIGHTS)
        contents.extract(WEIGHTS, stored)
        placed = align(stored, to / WEIGHTS, frozenset(needs.signature.halves))
    text = describe(needs.signature, needs.processor, placed)
    (to / DESCRIPTION).write_text(text, encoding="utf-8")
    _write_runtime(to, needs.processor.machine)


def _write_runtime(to: Path, machine: str) -> None:
    libraries = to / "lib"
    libraries.mkdir()
    for package, names in _RUNTIME.items():
        for name in names:
            shutil.copyfile(_package_folder(package) / "lib" / name, libraries / name)
    compiler = compile_native.find_compiler(machine)
    headers = _package_folder("tvm_ffi") / "include"
    compile_native.compile_library(compiler, headers, libraries, libraries / "libautopipe.so")
    (to / "bin").mkdir()
    compile_native.compile_program(compiler, libraries, to / "bin" / "run")
    for name, folder in _COPIED.items():
        (to / folder).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(compile_native.SOURCES / name, to / folder / name)
    _write_licences(to / "licenses")
    binaries = [*libraries.glob("*.so"), to / "bin" / "run"]
    (to / REQUIREMENTS).write_text(_requirements(machine, binaries), encoding="utf-8")


def _package_folder(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise SetupError("apache-tvm is not installed: pip install autopipe")
    return Path(spec.origin).parent


def _write_licences(to: Path) -> None:
    """Copy the licence texts of what the folder brings."""
    to.mkdir()
    for name in _DISTRIBUTIONS:
        for file in distribution(name).files or ():
            if "licenses" in file.parts and file.suffix in {"", ".txt", ".md"}:
                path = Path(str(file.locate()))
                if path.is_file():
                    shutil.copyfile(path, to / f"{name}.{path.name}")


def _requirements(machine: str, binaries: Sequence[Path]) -> str:
    """State what a machine must have, by the symbols that the binaries need."""

    def latest(family: bytes) -> str:
        versions = [compile_native.needed_version(path, family) for path in binaries]
        return max(versions, key=lambda version: tuple(map(int, version.split("."))))

    return "\n".join([
        f"Linux on {machine}",
        f"glibc {latest(b'GLIBC')} or later",
        f"libstdc++ with GLIBCXX_{latest(b'GLIBCXX')} or later",
        "",
    ])  # fmt: skip


def _write_digests(folder: Path) -> None:
    """Give every file its mode, and list its SHA-256 as `sha256sum` does."""
    lines = []
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        path.chmod(0o755 if name == "bin/run" else 0o644)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        lines.append(f"{digest}  {name}\n")
    (folder / DIGESTS).write_text("".join(lines), encoding="utf-8")


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())
