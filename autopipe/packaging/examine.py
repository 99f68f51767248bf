"""Looks a package through, byte for byte; nothing of it is loaded, and TVM is not needed."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from autopipe.artifacts.signature import LIBRARIES
from autopipe.compiler.walls import elf, linked
from autopipe.compiler.walls.foreign import ForeignCode
from autopipe.errors import PackageError
from autopipe.packaging import archive
from autopipe.packaging.archive import Member
from autopipe.packaging.contents import PackageContents, opened
from autopipe.packaging.manifest import ManifestFile, Needs


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
        """Name each artifact whose digest is another one than in a lock."""
        here = {name: file.sha256 for name, file in self.files.items()}
        here[f"{self.name}.tar"] = self.sha256
        return [
            f"{name}: locked {digest[:12]}, here {here.get(name, 'nothing')[:12]}"
            for name, digest in sorted(artifacts.items())
            if here.get(name) != digest
        ]


def examine(package: Path, copy: BinaryIO | None = None) -> Examined:
    """Check every digest of a package, and that its manifest and component list agree.

    With a `copy`, that is read, and `package` is only its name. The library is looked through for
    what runs when it is loaded, which no build leaves in one; what runs when it is called is not
    looked at. Raises PackageError for a package that is damaged or hostile.
    """
    with opened(package, copy) as contents:
        manifest = contents.manifest
        for name in manifest.files:
            contents.extract(name)
        for name in (name for name in LIBRARIES if name in contents.members):
            _library(contents, package, name)
        contents.agree()
        whole = Member(0, os.fstat(contents.file.fileno()).st_size)
        sha256 = archive.extract(contents.file, whole)
    return Examined(manifest.name, manifest.format, sha256, manifest.files, manifest.needs)


def _library(contents: PackageContents, package: Path, name: str) -> None:
    member = contents.members[name]
    data = archive.read(contents.file, member, member.size)
    if not data.startswith(elf.MAGIC):  # nobody can load it
        return
    try:
        linked.look_at_library(data, name)
    except ForeignCode as error:
        raise PackageError(f"{package}: {error}, which no build leaves there") from None
