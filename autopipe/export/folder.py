"""Exports a package: a folder with the model, TVM's runtime, a C library, a program and cases."""

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from autopipe.compiler.target import cpu
from autopipe.errors import ConfigError, PackageError, SetupError
from autopipe.export import cases, compile_native
from autopipe.export.reference_cases import ReferenceCases
from autopipe.export.runtime_files import (
    RuntimeFiles,
    find_installed_runtime,
    format_download_command,
    list_licences,
    unpack_wheels,
)
from autopipe.host.copy_file import LongWriter
from autopipe.packaging.contents import PackageContents, opened
from autopipe.packaging.manifest import WEIGHTS
from autopipe.packaging.open import open_package
from autopipe.packaging.provenance import Statement
from autopipe.runtime import folder as loader
from autopipe.runtime.description import describe_builds, list_halves
from autopipe.runtime.weights import widen_weights

DIGESTS: Final = "SHA256SUMS"
REQUIREMENTS: Final = "REQUIREMENTS"
RUNTIME: Final = "RUNTIME"

_COPIED: Final = {
    "autopipe.h": "include", "autopipe.hpp": "include", "serve.py": "python",
    "autopipe.pc": "lib/pkgconfig", "autopipe-config.cmake": "lib/cmake/autopipe",
}  # fmt: skip


def export_package(
    package: Path,
    to: Path,
    input_files: Sequence[Path] = (),
    *,
    wheels: Sequence[Path] = (),
    model: str | None = None,
) -> Path:
    """Export a package to a folder; the same package and compiler write the same bytes.

    Args:
        package: The package.
        to: The folder, which does not exist or is empty.
        input_files: Files of inputs, `.npz`, that become cases besides the random ones.
        wheels: Wheels of TVM's runtime, or folders with them, in place of the installed one.
        model: The model of the package, whose reference computes the expected outputs; by default
            the package does.

    Raises PackageError for a damaged package or one that this machine cannot run, ConfigError if
    the folder exists or the package cannot compute its cases here, SetupError without a C compiler
    or a runtime, StageError if it fails.
    """
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ConfigError(f"--to {to}: exists; name a new folder")
    parent = to.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix=f".{to.name}-") as work:
        new_folder = Path(work, "folder")
        new_folder.mkdir()
        with opened(package) as contents:
            runtime = _find_runtime(contents, wheels, Path(work, "runtime"), model)
            _write_folder(contents, runtime, new_folder)
        origin = _write_cases(new_folder, package, contents.manifest, model, input_files)
        (new_folder / cases.CASES / cases.ORIGIN).write_text(f"{origin}\n", encoding="utf-8")
        _write_digests(new_folder)
        new_folder.chmod(0o755)
        new_folder.replace(to)
    return to


def _find_runtime(
    contents: PackageContents, wheels: Sequence[Path], work: Path, model: str | None
) -> RuntimeFiles:
    """Return the runtime of a package. Raises SetupError or ConfigError if it is not available."""
    needs = contents.manifest.needs
    machine = needs.processor.machine
    if needs.signature.device != "cpu":
        raise ConfigError(
            f"a package for {needs.signature.device} is not exported: "
            "the folder has TVM's runtime for processors alone"
        )
    if machine == cpu.find_architecture({}):
        return (
            unpack_wheels(machine, needs.runtime, wheels, work)
            if wheels
            else find_installed_runtime(needs.runtime)
        )
    if not wheels:
        raise SetupError(
            f"built for {machine}, and TVM's runtime here is for {cpu.find_architecture({})}: "
            f"{format_download_command(machine, needs.runtime)}, then name the folder with "
            "--runtime"
        )
    if model is None:
        raise ConfigError(
            f"built for {machine}, so that it cannot compute the cases of its self-test here: "
            "name its model with --model, which the reference runs"
        )
    return unpack_wheels(machine, needs.runtime, wheels, work)


def _write_folder(contents: PackageContents, runtime: RuntimeFiles, to: Path) -> None:
    needs = contents.manifest.needs
    for name in contents.manifest.files:
        if name != WEIGHTS:
            contents.extract(name, to / name)
    (to / "manifest.json").write_bytes(contents.read("manifest.json"))
    contents.agree()
    requirements = needs.model_dump(mode="json")
    weight_bytes = contents.map(WEIGHTS)
    try:
        with LongWriter((to / WEIGHTS).open("xb")) as out:
            placed_weights = widen_weights(weight_bytes, list_halves(requirements), out)
    except ValueError as error:
        raise PackageError(f"{WEIGHTS} cannot be read: {error}") from None
    for name, text in describe_builds(requirements, placed_weights):
        (to / name).write_text(text, encoding="utf-8")
    _write_runtime(to, needs.processor.machine, runtime)


def _write_runtime(to: Path, machine: str, runtime: RuntimeFiles) -> None:
    libraries = to / "lib"
    write_libraries(libraries, machine, runtime)
    (to / "bin").mkdir()
    compiler = compile_native.find_compiler(machine)
    compile_native.compile_program(compiler, runtime.headers, to / "bin" / "run")
    for name, folder in _COPIED.items():
        (to / folder).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(compile_native.SOURCES / name, to / folder / name)
    shutil.copyfile(str(loader.__file__), to / "python" / "autopipe_runtime.py")
    write_licences(to / "licenses", runtime)
    (to / RUNTIME).write_text("\n".join([*runtime.origins, ""]), encoding="utf-8")
    binaries = [*to.glob("*.so*"), *libraries.glob("*.so"), to / "bin" / "run"]
    (to / REQUIREMENTS).write_text(_format_requirements(machine, binaries), encoding="utf-8")


def write_libraries(to: Path, machine: str, runtime: RuntimeFiles) -> None:
    """Write TVM's runtime, and the C library that is compiled for it.

    Raises SetupError without a C compiler, StageError if it fails.
    """
    to.mkdir()
    for path in runtime.libraries:
        shutil.copyfile(path, to / path.name)
    compiler = compile_native.find_compiler(machine)
    compile_native.compile_library(compiler, runtime.headers, to / "libautopipe.so")


def write_licences(to: Path, runtime: RuntimeFiles) -> None:
    """Copy the licence texts of the libraries of `write_libraries`."""
    to.mkdir()
    for name, path in {**runtime.licences, **dict(list_licences("autopipe"))}.items():
        shutil.copyfile(path, to / name)


def _write_cases(
    to: Path, package: Path, manifest: Statement, model: str | None, input_files: Sequence[Path]
) -> str:
    """Write the cases; return the origin of their outputs."""
    folder, signature = to / cases.CASES, manifest.needs.signature
    if model is None:
        cases.write_cases(
            folder, signature, cases.make_answer_function(open_package(package)), input_files
        )
        return cases.OWN
    with tempfile.TemporaryDirectory(dir=to.parent) as work:
        answers = ReferenceCases(manifest, model, Path(work))
        cases.write_cases(folder, signature, answers.answer, input_files)
        return answers.origin


def _format_requirements(machine: str, binaries: Sequence[Path]) -> str:
    """Format the requirements on a machine, derived from the symbols that the binaries need."""
    return "\n".join([
        f"Linux on {machine}",
        f"glibc {find_latest_version(binaries, b'GLIBC')} or later",
        f"libstdc++ with GLIBCXX_{find_latest_version(binaries, b'GLIBCXX')} or later",
        "",
    ])  # fmt: skip


def find_latest_version(binaries: Iterable[Path], family: bytes) -> str:
    """Return the latest version of a family of symbols that binaries need."""
    versions = [compile_native.find_needed_version(path, family) for path in binaries]
    return max(versions, key=lambda version: tuple(map(int, version.split("."))))


def _write_digests(folder: Path) -> None:
    """Set the mode of every file, and list its SHA-256 in the format of `sha256sum`."""
    lines = []
    for path in _list_files(folder):
        name = path.relative_to(folder).as_posix()
        path.chmod(0o755 if name == "bin/run" else 0o644)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        lines.append(f"{digest}  {name}\n")
    (folder / DIGESTS).write_text("".join(lines), encoding="utf-8")


def _list_files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())
