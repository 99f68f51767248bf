"""Opens a package: nothing of it is run before everything about it has been checked."""

import tempfile
from collections.abc import Set as AbstractSet
from pathlib import Path

from pydantic import ValidationError

from autopipe.compiler import cpu, gpu
from autopipe.compiler.runtime import Model, load
from autopipe.errors import PackageError, StageError, TargetError
from autopipe.libraries import shipped
from autopipe.packaging import archive
from autopipe.packaging.manifest import LIBRARY, MANIFEST, WEIGHTS, Manifest, check_runtime

_MANIFEST_LIMIT = 64 << 20
_NAMES = (LIBRARY, MANIFEST, WEIGHTS)


def open_package(package: str | Path) -> Model:
    """Return the packaged model: call it with numpy arrays by name, get numpy arrays by name.

    It runs on as many threads as it was tuned for, if the machine has them. A package is a
    program: the digests in it find damage, not forgery. Raises PackageError for a damaged or
    hostile package and for one that this processor can not run, SetupError for one that needs
    another TVM.
    """
    package = Path(package)
    with (
        archive.opened(package, _NAMES, shipped()) as (file, members),
        tempfile.TemporaryDirectory(prefix="autopipe-") as folder,
    ):
        text = archive.read(file, members[MANIFEST], _MANIFEST_LIMIT)
        manifest = _manifest(text, members.keys() - {MANIFEST})
        check_runtime(manifest.runtime)
        _check_processor(manifest)
        for name, expected in manifest.files.items():
            if archive.extract(file, members[name], Path(folder, name)) != expected.sha256:
                raise PackageError(f"{name!r} is damaged: its sha256 is not the manifest's")
        try:
            return load(Path(folder, LIBRARY), Path(folder, WEIGHTS), manifest.signature)
        except StageError as error:
            raise PackageError(str(error)) from error


def _manifest(text: bytes, files: AbstractSet[str]) -> Manifest:
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise PackageError(f"{MANIFEST} does not fit: {field}: {first['msg']}") from None
    if manifest.files.keys() != files:
        raise PackageError(f"{MANIFEST} lists {', '.join(sorted(manifest.files)) or 'no files'}")
    return manifest


def _check_processor(manifest: Manifest) -> None:
    processor = manifest.processor
    try:
        cpu.check(processor.machine, processor.mcpu, processor.features)
        if processor.gpu is not None:
            gpu.check(processor.gpu)
    except TargetError as error:
        raise PackageError(str(error)) from None
