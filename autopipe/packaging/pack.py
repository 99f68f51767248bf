"""Makes a package: a tar that is the same, byte for byte, whenever it is made from the same."""

import hashlib
import json
from pathlib import Path
from typing import Any

from autopipe import libraries
from autopipe.packaging import archive
from autopipe.packaging.manifest import LIBRARY, MANIFEST, WEIGHTS, File, Manifest
from autopipe.pipeline.canonical import pretty


def pack(manifest: Manifest, library: Path, work: Path, out: Path) -> None:
    """Write the package `out` of a LIBRARY artifact; `work` takes the manifest."""
    text = work / MANIFEST
    text.write_text(pretty(manifest.model_dump(mode="json")), encoding="utf-8")
    archive.write(out, {MANIFEST: text, **{name: library / name for name in manifest.files}})


def describe(library: Path) -> dict[str, File]:
    """Return size and digest of the files that a package takes from a LIBRARY artifact."""
    called = [libraries.named(name) for name in called_by(library)]
    files = [file.name for each in called if each for file in each.files]
    return {name: _file(library / name) for name in (LIBRARY, WEIGHTS, *files)}


def called_by(library: Path) -> dict[str, str]:
    """Return the versions of the libraries that a LIBRARY artifact calls, by name."""
    document = json.loads((library / "library.json").read_text(encoding="utf-8"))
    return dict(document.get("libraries", {}))


def verification(report: Path | None) -> str | None:
    """Return what `verify.json` says, without what may differ from run to run."""
    if report is None:
        return None
    document: dict[str, Any] = json.loads((report / "verify.json").read_text(encoding="utf-8"))
    checked = sum(not case["skipped"] for case in document["cases"])
    return f"{document['reference']} {document['reference_version']}, {checked} cases"


def _file(path: Path) -> File:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return File(size=path.stat().st_size, sha256=digest)
