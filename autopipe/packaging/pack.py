"""Write a package: a tar that is byte for byte reproducible."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from autopipe import libraries
from autopipe.compiler.step_counter import count_steps
from autopipe.host.copy_file import STRETCH
from autopipe.packaging import archive, components
from autopipe.packaging.manifest import COMPONENTS, MANIFEST, WEIGHTS, ManifestFile
from autopipe.packaging.provenance import Predicate, Statement, describe_subjects
from autopipe.packaging.variants import NODE_MAPS, list_builds, list_libraries
from autopipe.store.canonical import pretty

_MIB: Final = 1 << 20


def write_package(predicate: Predicate, library: Path, work: Path, out: Path) -> None:
    """Write the package `out` of a LIBRARY artifact; its metadata is written to `work`."""
    needs = predicate.build_definition.internal_parameters
    called_libraries = {name for _, build in list_builds(needs) for name in build.libraries}
    names = (*list_libraries(needs), WEIGHTS, *_list_library_files(sorted(called_libraries)))
    maps = (name for name in NODE_MAPS if (library / name).exists())
    paths = {name: library / name for name in (*names, *maps)}
    report = _count_bytes(sum(path.stat().st_size for path in paths.values()), passes=2)
    files = {name: _describe_file(path, report) for name, path in paths.items()}
    paths[COMPONENTS], paths[MANIFEST] = work / COMPONENTS, work / MANIFEST
    component_list = components.format_components(
        Statement(subject=describe_subjects(files), predicate=predicate)
    )
    paths[COMPONENTS].write_text(component_list, encoding="utf-8")
    files[COMPONENTS] = _describe_file(paths[COMPONENTS])
    statement = Statement(subject=describe_subjects(files), predicate=predicate)
    text = pretty(statement.model_dump(mode="json", by_alias=True))
    paths[MANIFEST].write_text(text, encoding="utf-8")
    archive.write_archive(out, paths, report)


def _list_library_files(library_names: Iterable[str]) -> list[str]:
    """Return the names of the files that called libraries add to a package."""
    return [
        file.name
        for library in map(libraries.find_library, library_names)
        if library
        for file in library.files
    ]


def _count_bytes(total: int, *, passes: int) -> Callable[[int], None]:
    """Count the MiB that are packed; the result takes the bytes of a part in one of the passes."""
    report, done = count_steps("MiB packed", total // _MIB), 0

    def add(part: int) -> None:
        nonlocal done
        done += part
        report(done // passes // _MIB)

    return add


def _describe_file(path: Path, report: Callable[[int], None] = lambda _: None) -> ManifestFile:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(STRETCH):
            digest.update(part)
            report(len(part))
    return ManifestFile(size=path.stat().st_size, sha256=digest.hexdigest())
