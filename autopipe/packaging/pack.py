"""Write a package: a tar that is byte for byte reproducible."""

from collections.abc import Callable, Iterable
from pathlib import Path

from autopipe import libraries
from autopipe.compiler.step_counter import count_bytes
from autopipe.packaging import archive, components
from autopipe.packaging.manifest import COMPONENTS, MANIFEST, WEIGHTS, ManifestFile
from autopipe.packaging.provenance import Predicate, Statement, describe_subjects
from autopipe.packaging.variants import NODE_MAPS, list_builds, list_libraries
from autopipe.store import files
from autopipe.store.canonical import pretty


def write_package(predicate: Predicate, library: Path, work: Path, out: Path) -> None:
    """Write the package `out` of a LIBRARY artifact; its metadata is written to `work`."""
    needs = predicate.build_definition.internal_parameters
    called_libraries = {name for _, build in list_builds(needs) for name in build.libraries}
    names = (*list_libraries(needs), WEIGHTS, *_list_library_files(sorted(called_libraries)))
    maps = (name for name in NODE_MAPS if (library / name).exists())
    paths = {name: library / name for name in (*names, *maps)}
    size = sum(path.stat().st_size for path in paths.values())
    report = count_bytes("MiB packed", size, passes=2)
    manifest_files = {name: _describe_file(path, report) for name, path in paths.items()}
    paths[COMPONENTS], paths[MANIFEST] = work / COMPONENTS, work / MANIFEST
    component_list = components.format_components(
        Statement(subject=describe_subjects(manifest_files), predicate=predicate)
    )
    paths[COMPONENTS].write_text(component_list, encoding="utf-8")
    manifest_files[COMPONENTS] = _describe_file(paths[COMPONENTS])
    statement = Statement(subject=describe_subjects(manifest_files), predicate=predicate)
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


def _describe_file(path: Path, report: Callable[[int], None] = lambda _: None) -> ManifestFile:
    return ManifestFile(size=path.stat().st_size, sha256=files.sha256(path, report))
