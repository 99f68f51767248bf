"""Looks an exported folder through, byte for byte, as `packaging.examine` does a package."""

import hashlib
from pathlib import Path

from autopipe.errors import PackageError
from autopipe.export.verify_folder import read_digests, verify_folder
from autopipe.packaging import provenance
from autopipe.packaging.examine import Examined
from autopipe.packaging.manifest import MANIFEST, ManifestFile


def examine_folder(folder: Path) -> Examined:
    """Return what a folder states of itself; its digest is that of its list of digests.

    Raises PackageError for a folder that is damaged, or was not exported.
    """
    digests = read_digests(folder)
    listed = verify_folder(folder, digests)
    if MANIFEST not in listed:
        raise PackageError(f"{folder}: {MANIFEST} is missing")
    manifest = provenance.parse_manifest((folder / MANIFEST).read_bytes())
    files = {
        name: ManifestFile(sha256=digest, size=(folder / name).stat().st_size)
        for name, digest in listed.items()
    }
    sha256 = hashlib.sha256(digests).hexdigest()
    return Examined(manifest.name, manifest.format, sha256, files, manifest.needs, {})
