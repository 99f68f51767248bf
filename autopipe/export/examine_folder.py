"""Check all bytes of an exported folder, like `packaging.examine` a package."""

import hashlib
from pathlib import Path

from autopipe.errors import PackageError
from autopipe.export.verify_folder import read_digests, verify_folder
from autopipe.packaging import provenance
from autopipe.packaging.examine import Examined
from autopipe.packaging.manifest import MANIFEST, ManifestFile


def examine_folder(folder: Path) -> Examined:
    """Check a folder and return its description; its digest is that of its list of digests.

    Raises PackageError for a folder that is damaged, or is no exported folder.
    """
    digests = read_digests(folder)
    file_digests = verify_folder(folder, digests)
    if MANIFEST not in file_digests:
        raise PackageError(f"{folder}: {MANIFEST} is missing")
    manifest = provenance.parse_manifest((folder / MANIFEST).read_bytes())
    files = {
        name: ManifestFile(sha256=digest, size=(folder / name).stat().st_size)
        for name, digest in file_digests.items()
    }
    sha256 = hashlib.sha256(digests).hexdigest()
    return Examined(manifest.name, manifest.format, sha256, files, manifest.needs, {})
