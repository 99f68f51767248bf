"""Looks a package through, byte for byte; nothing of it is loaded, and TVM is not needed."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from autopipe.packaging import archive
from autopipe.packaging.contents import opened
from autopipe.packaging.manifest import ManifestFile, Needs
from autopipe.runtime.archive import Member


@dataclass(frozen=True, slots=True)
class Examined:
    """What a sound package says of itself."""

    name: str
    """Name of the pipeline."""
    format: int
    """Version of the package format."""
    sha256: str
    """Digest of the package."""
    files: Mapping[str, ManifestFile]
    """Its files besides the manifest."""
    needs: Needs
    """What opening it takes; whether that is here was not looked at."""

    def differences(self, artifacts: Mapping[str, str]) -> list[str]:
        """Name each artifact whose digest is another one than in a lock.

        A lock that does not name the package itself was not written for it.
        """
        whole = f"{self.name}.tar"
        here = {name: file.sha256 for name, file in self.files.items()} | {whole: self.sha256}
        pairs = {name: (artifacts.get(name), here.get(name)) for name in (whole, *artifacts)}
        return [
            f"{name}: locked {(locked or 'nothing')[:12]}, here {(found or 'nothing')[:12]}"
            for name, (locked, found) in sorted(pairs.items())
            if locked != found
        ]


def examine(package: Path, copy: BinaryIO | None = None) -> Examined:
    """Check every digest of a package, and that its manifest and component list agree.

    With a `copy`, that is read, and `package` is only its name. The code of the libraries is not
    inspected: digests find damage, and only a signature states whose code it is. Raises
    PackageError for a package that is damaged.
    """
    with opened(package, copy) as contents:
        manifest = contents.manifest
        for name in manifest.files:
            contents.extract(name)
        contents.agree()
        whole = Member(0, os.fstat(contents.file.fileno()).st_size)
        sha256 = archive.extract(contents.file, whole)
    return Examined(manifest.name, manifest.format, sha256, manifest.files, manifest.needs)
