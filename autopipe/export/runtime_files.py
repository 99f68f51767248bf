"""TVM's runtime for an exported folder: the installed one, or one from wheels."""

import hashlib
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from autopipe import foreign
from autopipe.errors import PackageError, SetupError
from autopipe.packaging.manifest import check_runtime

_LIBRARIES: Final = {
    "apache-tvm": ("tvm/lib/libtvm_runtime.so", "tvm/lib/libtvm_runtime_extra.so"),
    "apache-tvm-ffi": ("tvm_ffi/lib/libtvm_ffi.so",),
}
"""The libraries of each distribution, by their paths in it."""
_HEADERS: Final = "tvm_ffi/include/"
_LARGEST: Final = 64 << 20
"""Maximum size of a file that is extracted from a wheel."""
_TAG: Final = "manylinux_2_28"
"""Platform tag of the download command; wheels for older systems have this tag, too."""


@dataclass(frozen=True, slots=True)
class RuntimeFiles:
    """Paths of the files of the runtime."""

    libraries: tuple[Path, ...]
    """Shared libraries, with their names in the folder."""
    headers: Path
    """Folder of the headers."""
    licences: Mapping[str, Path]
    """Licence texts, by their names in the folder."""
    origins: tuple[str, ...]
    """A line for each distribution: its version, and file name and digest of its wheel."""


def find_installed_runtime(versions: Mapping[str, str]) -> RuntimeFiles:
    """Return the runtime of this machine. Raises SetupError unless it has these versions."""
    check_runtime(dict(versions))
    folders = {name: _find_package_folder(name) for name in ("tvm", "tvm_ffi")}
    paths = [PurePosixPath(path) for each in _LIBRARIES.values() for path in each]
    return RuntimeFiles(
        libraries=tuple(
            folders[path.parts[0]].joinpath(*path.parts[1:])
            for path in paths
        ),
        headers=folders["tvm_ffi"] / "include",
        licences={
            name: path for package in versions for name, path in list_licences(package)
        },
        origins=tuple(f"{name} {version}, as installed" for name, version in versions.items()),
    )  # fmt: skip


def list_licences(package: str) -> Iterator[tuple[str, Path]]:
    """Yield the licence texts of an installed distribution, each with its name in the folder."""
    for file in distribution(package).files or ():
        path = Path(str(file.locate()))
        if _is_licence(str(file)) and path.is_file():
            yield f"{package}.{path.name}", path


def unpack_wheels(
    machine: str, versions: Mapping[str, str], paths: Sequence[Path], to: Path
) -> RuntimeFiles:
    """Extract the runtime for an architecture from wheels.

    Args:
        machine: The architecture, such as `aarch64`.
        versions: The version of each distribution that is needed.
        paths: Wheels, or folders with wheels.
        to: A new folder.

    Raises SetupError if a wheel is missing, with the command that downloads it, and
    PackageError for one that is damaged.
    """
    wheels = list(_list_wheels(paths))
    licences: dict[str, Path] = {}
    origins = []
    for package, version in versions.items():
        wheel = _find_wheel(wheels, package, version, machine)
        if wheel is None:
            raise SetupError(
                f"--runtime: no wheel of {package} {version} for {machine}: "
                f"{format_download_command(machine, versions)}"
            )
        try:
            names, digest = _unpack_wheel(wheel, set(_LIBRARIES[package]), to)
        except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            raise PackageError(f"{wheel}: not a wheel: {error}") from None
        licences |= {
            f"{package}.{PurePosixPath(name).name}": to / name
            for name in names
            if _is_licence(name)
        }
        origins.append(f"{package} {version}, {wheel.name}, sha256 {digest}")
    libraries = [to / path for each in _LIBRARIES.values() for path in each]
    return RuntimeFiles(tuple(libraries), to / _HEADERS, licences, tuple(origins))


def format_download_command(machine: str, versions: Mapping[str, str]) -> str:
    """Return the command that downloads the runtime for an architecture."""
    pins = " ".join(f"{name}=={version}" for name, version in versions.items())
    return (
        f"pip download --only-binary :all: --no-deps --platform {_TAG}_{machine} -d wheels {pins}"
    )


def _find_package_folder(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise SetupError("apache-tvm is not installed: pip install autopipe")
    return Path(spec.origin).parent


def _is_licence(name: str) -> bool:
    path = PurePosixPath(name)
    return "licenses" in path.parts and path.suffix in {"", ".txt", ".md"}


def _list_wheels(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(path.glob("*.whl"))
        elif path.is_file():
            yield path
        else:
            raise SetupError(f"--runtime {path}: there is no such file or folder")


def _find_wheel(wheels: Sequence[Path], package: str, version: str, machine: str) -> Path | None:
    """Return the first wheel of that distribution, version and architecture, by its file name."""
    for wheel in wheels:
        parts = wheel.name.removesuffix(".whl").split("-")
        name = re.sub(r"[-_.]+", "-", parts[0]).lower()
        if len(parts) < 5 or (name, parts[1]) != (package, version):  # noqa: PLR2004 - PEP 427
            continue
        if any(re.fullmatch(rf"(many)?linux\w*_{machine}", tag) for tag in parts[-1].split(".")):
            return wheel
    return None


def _unpack_wheel(wheel: Path, libraries: set[str], to: Path) -> tuple[list[str], str]:
    """Extract libraries, headers and licences; return their names and the SHA-256 of the wheel."""
    with foreign.open_regular_file(wheel) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return _extract_files(wheel, file, libraries, to), digest


def _extract_files(wheel: Path, file: BinaryIO, libraries: set[str], to: Path) -> list[str]:
    """Extract libraries, headers and licences; return their names."""
    with zipfile.ZipFile(file) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        selected_names = [
            name
            for name in names
            if name in libraries or name.startswith(_HEADERS) or _is_licence(name)
        ]
        if missing := sorted(libraries - set(selected_names)):
            raise PackageError(f"{wheel}: {missing[0]} is missing")
        for name in selected_names:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise PackageError(f"{wheel}: {name!r} leads out of it")
            if archive.getinfo(name).file_size > _LARGEST:
                raise PackageError(f"{wheel}: {name!r} is larger than {_LARGEST >> 20} MiB")
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            with archive.open(name) as source, (to / name).open("wb") as out:
                shutil.copyfileobj(source, out)
    return selected_names
