"""Build the wheel `autopipe-run`, which opens packages with NumPy alone.

It has `autopipe/runtime` as the package `autopipe_runtime`, and in its folder `lib` the C library
and TVM's runtime. The same compiler and TVM give the same bytes.
"""

import base64
import hashlib
import tempfile
import zipfile
from collections.abc import Mapping
from importlib.metadata import requires, version
from pathlib import Path
from typing import Final

from autopipe import runtime
from autopipe.compiler.target import cpu
from autopipe.export.compile_native import SOURCES
from autopipe.export.folder import find_latest_version, write_libraries, write_licences
from autopipe.export.runtime_files import find_installed_runtime
from autopipe.packaging.manifest import read_installed_runtime
from autopipe.runtime.package import RUNTIME
from autopipe.store.canonical import pretty

_NAME: Final = "autopipe_run"
_MODULE: Final = "autopipe_runtime"
_NUMPY: Final = "numpy>=1.24"
_SERVER: Final = 'extra == "serve"'
"""Marker of the requirements of `serve.py`, among those of autopipe."""
_OLDEST: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time of the zip format."""


def build_wheel(to: Path) -> Path:
    """Write the wheel into a folder and return its path.

    Raises SetupError without a C compiler, StageError if it fails.
    """
    machine = cpu.find_architecture({})
    number = version("autopipe")
    with tempfile.TemporaryDirectory(prefix="autopipe-") as work:
        libraries, licences = Path(work, "lib"), Path(work, "licenses")
        write_runtime(libraries, machine)
        write_licences(licences, find_installed_runtime(read_installed_runtime()))
        binaries = sorted(libraries.glob("*.so"))
        glibc = find_latest_version(binaries, b"GLIBC").replace(".", "_")
        tag = f"py3-none-manylinux_{glibc}_{machine}"
        files = {f"{_MODULE}/lib/{path.name}": path.read_bytes() for path in libraries.iterdir()}
        files |= _read_modules()
        info = f"{_NAME}-{number}.dist-info"
        texts = {path.name: path.read_bytes() for path in sorted(licences.iterdir())}
        files |= {f"{info}/licenses/{name}": text for name, text in texts.items()}
        files[f"{info}/METADATA"] = _format_metadata(number, texts).encode()
        files[f"{info}/WHEEL"] = (
            f"Wheel-Version: 1.0\nGenerator: autopipe {number}\n"
            f"Root-Is-Purelib: false\nTag: {tag}\n"
        ).encode()
    to.mkdir(parents=True, exist_ok=True)
    out = to / f"{_NAME}-{number}-{tag}.whl"
    _write_zip(out, files, f"{info}/RECORD")
    return out


def write_runtime(to: Path, machine: str) -> None:
    """Write the libraries and their versions. Raises the errors of `build_wheel`."""
    write_libraries(to, machine, find_installed_runtime(read_installed_runtime()))
    digests = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(to.iterdir())
    }
    document = {"versions": read_installed_runtime(), "sha256": digests}
    (to / RUNTIME).write_text(pretty(document), encoding="utf-8")


def _read_modules() -> dict[str, bytes]:
    """Return the Python files, by their paths in the wheel."""
    folder = Path(str(runtime.__file__)).parent
    paths = [*sorted(folder.glob("*.py")), SOURCES / "serve.py"]
    return {f"{_MODULE}/{path.name}": path.read_bytes() for path in paths}


def _format_metadata(number: str, licences: Mapping[str, bytes]) -> str:
    return "\n".join([
        "Metadata-Version: 2.4",
        "Name: autopipe-run",
        f"Version: {number}",
        "Summary: Runs packages of autopipe with NumPy alone",
        "License-Expression: Apache-2.0",
        *(f"License-File: {name}" for name in licences),
        "Requires-Python: >=3.9",
        f"Requires-Dist: {_NUMPY}",
        "Provides-Extra: serve",
        *(f"Requires-Dist: {one}" for one in requires("autopipe") or () if one.endswith(_SERVER)),
        "",
    ])  # fmt: skip


def _write_zip(out: Path, files: Mapping[str, bytes], record: str) -> None:
    """Write a wheel with its record of digests."""
    lines = []
    for name, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    contents = dict(sorted(files.items()))
    contents[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in contents.items():
            entry = zipfile.ZipInfo(name, _OLDEST)
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)
