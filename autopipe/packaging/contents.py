"""The contents of a package, checked against its manifest without unpacking."""

import hashlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from autopipe.artifacts.signature import LIBRARY, SIZED
from autopipe.config.problem import format_value
from autopipe.errors import PackageError
from autopipe.libraries import list_shipped_files
from autopipe.packaging import archive, components, provenance
from autopipe.packaging.manifest import COMPONENTS, MANIFEST, WEIGHTS
from autopipe.packaging.provenance import Statement
from autopipe.packaging.variants import FILES, NODE_MAPS, list_libraries
from autopipe.runtime.archive import Member
from autopipe.signing.signature import SignedKind
from autopipe.signing.signers import Signer, Signers

if TYPE_CHECKING:
    import numpy as np

_LARGEST: Final = 64 << 20
"""Maximum bytes of a file that is read into memory."""
_LONG: Final = 300
"""Maximum length of a list of names in a message."""


class PackageContents(NamedTuple):
    """An open package."""

    manifest: Statement
    members: dict[str, Member]
    file: BinaryIO

    def read(self, name: str) -> bytes:
        """Return the bytes of a small file. Raises PackageError."""
        if name not in self.members:
            raise PackageError(f"{name!r} is missing")
        return archive.read_member(self.file, self.members[name], _LARGEST)

    def agree(self) -> None:
        """Raise PackageError unless the component list matches the manifest."""
        components.check_components(self.read(COMPONENTS), self.manifest)

    def extract(self, name: str, to: Path | None = None) -> None:
        """Check a file against the manifest, and copy it to `to` if given. Raises PackageError."""
        self._check_size(name)
        self._check_digest(name, archive.extract_member(self.file, self.members[name], to))

    def map(self, name: str) -> "np.ndarray":
        """Return the bytes of a file in the mapped archive. Raises PackageError."""
        from autopipe.runtime.weights import map_bytes

        self._check_size(name)
        data = map_bytes(self.file, *self.members[name])
        self._check_digest(name, hashlib.sha256(data.data).hexdigest())
        return data

    def _check_size(self, name: str) -> None:
        expected_size, size = self.manifest.files[name].size, self.members[name].size
        if size != expected_size:
            raise PackageError(
                f"{name!r} is damaged: it has {size} bytes, {expected_size} in the manifest"
            )

    def _check_digest(self, name: str, digest: str) -> None:
        if digest != self.manifest.files[name].sha256:
            raise PackageError(f"{name!r} is damaged: its sha256 is not the manifest's")


@contextmanager
def open_signed_package(
    package: Path, signers: Signers | None
) -> Iterator[tuple[BinaryIO | None, Signer | None]]:
    """Yield a private copy of a package whose signature was verified, and its signer.

    Without `signers` it yields None for both. Raises PackageError, UnsignedError, ConfigError,
    SetupError, StoreError.
    """
    if signers is None:
        yield None, None
        return
    with (
        archive.open_archive_file(package) as source,
        signers.checked(source, package, SignedKind.PACKAGE) as copy_and_signer,
    ):
        yield copy_and_signer


@contextmanager
def opened(package: Path, copy: BinaryIO | None = None) -> Iterator[PackageContents]:
    """Open a package and read its manifest, which has to list exactly the files in the archive.

    With a `copy`, that is read, and `package` is only its name. Raises PackageError.
    """
    optional = (COMPONENTS, *SIZED, *FILES, *NODE_MAPS, *list_shipped_files())
    names = (LIBRARY, MANIFEST, WEIGHTS)
    with archive.open_archive(package, names, optional, copy) as (file, members):
        manifest = provenance.parse_manifest(archive.read_member(file, members[MANIFEST], _LARGEST))
        if manifest.files.keys() != members.keys() - {MANIFEST}:
            listed_names = format_value(", ".join(sorted(manifest.files)) or "no files", _LONG)
            present_names = ", ".join(sorted(members.keys() - {MANIFEST}))
            raise PackageError(f"{MANIFEST} lists {listed_names}; there are {present_names}")
        _check_libraries(manifest, members)
        yield PackageContents(manifest, members, file)


def _check_libraries(manifest: Statement, members: Collection[str]) -> None:
    """Raise PackageError unless the libraries are exactly those of the manifest."""
    called_libraries = sorted(set(list_libraries(manifest.needs)) - {LIBRARY})
    present_libraries = sorted(name for name in (*SIZED, *FILES) if name in members)
    if called_libraries != present_libraries:
        names, present_names = (
            ", ".join(called_libraries) or "no library",
            ", ".join(present_libraries) or "none",
        )
        raise PackageError(f"{MANIFEST} calls {names} beside {LIBRARY}; there is {present_names}")
