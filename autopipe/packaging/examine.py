"""Check all bytes of a package without loading it; TVM is not needed."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from autopipe.artifacts.signature import LIBRARY, number_weight
from autopipe.errors import PackageError
from autopipe.packaging import archive
from autopipe.packaging.contents import PackageContents, opened
from autopipe.packaging.manifest import WEIGHTS, ManifestFile, Needs
from autopipe.packaging.variants import list_builds, list_own_libraries
from autopipe.runtime.archive import Member


@dataclass(frozen=True, slots=True)
class Examined:
    """The description of an undamaged package."""

    name: str
    """Name of the pipeline."""
    format: int
    """Version of the package format."""
    sha256: str
    """Digest of the package."""
    files: Mapping[str, ManifestFile]
    """Its files besides the manifest."""
    needs: Needs
    """Requirements of opening it, which were not compared with this machine."""
    builds: Mapping[str, Mapping[str, str]]
    """Digests of libraries and weights of each build of a combined package, by its processor, as in
    its original package; empty for other packages."""

    def find_build(self, artifacts: Mapping[str, str]) -> str | None:
        """Return the processor of the build in a combined package that matches a lock."""
        libraries = {digests[LIBRARY]: mcpu for mcpu, digests in self.builds.items()}
        return libraries.get(artifacts.get(LIBRARY, ""))

    def differences(self, artifacts: Mapping[str, str]) -> list[str]:
        """List each artifact whose digest differs from that in a lock.

        A lock without the package itself was not written for it. In a combined package the digests
        of the matching build are compared, because a lock names only packages of one build.
        """
        if self.builds:
            return self._differences_of_build(artifacts)
        package_name = f"{self.name}.tar"
        digests = {name: file.sha256 for name, file in self.files.items()} | {
            package_name: self.sha256
        }
        return _list_differences({package_name: None, **artifacts}, digests)

    def _differences_of_build(self, artifacts: Mapping[str, str]) -> list[str]:
        mcpu = self.find_build(artifacts)
        if mcpu is None:
            locked_digest = artifacts.get(LIBRARY, "nothing")[:12]
            own_digests = ", ".join(
                f"{d[LIBRARY][:12]} for {mcpu}" for mcpu, d in self.builds.items()
            )
            return [f"{LIBRARY}: locked {locked_digest}, here {own_digests}"]
        locked_files = {name: d for name, d in artifacts.items() if not name.endswith(".tar")}
        return _list_differences({WEIGHTS: None, **locked_files}, self.builds[mcpu])


def _list_differences(
    locked_digests: Mapping[str, str | None], digests: Mapping[str, str]
) -> list[str]:
    return [
        f"{name}: locked {(digest or 'nothing')[:12]}, here {digests.get(name, 'nothing')[:12]}"
        for name, digest in sorted(locked_digests.items())
        if digest != digests.get(name)
    ]


def examine_package(package: Path, copy: BinaryIO | None = None) -> Examined:
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
        archive_span = Member(0, os.fstat(contents.file.fileno()).st_size)
        sha256 = archive.extract_member(contents.file, archive_span)
        builds = dict(_hash_builds(contents))
    return Examined(manifest.name, manifest.format, sha256, manifest.files, manifest.needs, builds)


def _hash_builds(contents: PackageContents) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the processor of each build of a combined package, and the digests of its files."""
    manifest = contents.manifest
    if not manifest.needs.variants:
        return
    for prefix, build in list_builds(manifest.needs):
        digests = {name: manifest.files[prefix + name].sha256 for name in list_own_libraries(build)}
        yield build.processor.mcpu, {**digests, WEIGHTS: _hash_weights(contents, build)}


def _hash_weights(contents: PackageContents, build: Needs) -> str:
    """Return the SHA-256 of the weights of a build in the form that *build* writes.

    They are numbered in file order: those of the first library, then those that are new in each of
    the others.
    """
    from autopipe.runtime.weights import read_header, view_weight, write_weights

    data = contents.map(WEIGHTS)
    signature = build.signature
    other_names = dict.fromkeys(name for entry in signature.entries for name in entry.weights)
    names = [*signature.weights, *(name for name in other_names if name not in signature.weights)]
    digest = hashlib.sha256()
    try:
        stored_weights = read_header(data.data)
        placed_weights = {
            number_weight(place): stored_weights[name] for place, name in enumerate(names)
        }
        plan = {name: (weight.dtype, weight.shape) for name, weight in placed_weights.items()}
        write_weights(digest.update, plan, lambda name: view_weight(data, placed_weights[name]))
    except (ValueError, LookupError) as error:
        raise PackageError(f"{WEIGHTS} does not fit: {error}") from None
    return digest.hexdigest()
