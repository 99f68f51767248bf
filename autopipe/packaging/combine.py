"""Combine packages of one model for several processors into one package."""

import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from autopipe.artifacts.signature import NODES, Signature
from autopipe.errors import ConfigError, PackageError
from autopipe.packaging.contents import opened
from autopipe.packaging.manifest import COMPONENTS, WEIGHTS, Needs, Variant
from autopipe.packaging.pack import write_package
from autopipe.packaging.provenance import Predicate, Request, Source, Statement
from autopipe.packaging.variants import MOST, list_own_libraries
from autopipe.runtime.weights import (
    PlacedWeight,
    map_bytes,
    read_header,
    view_weight,
    write_weights,
)


def combine_packages(packages: Sequence[Path], out: Path) -> list[str]:
    """Write a package of all builds in `packages`; return their processors, the most basic first.

    The result does not depend on the order of the packages. Raises PackageError for a damaged
    package, ConfigError for packages that cannot be combined.
    """
    if out.exists():
        raise ConfigError(f"--output {out}: exists; name a new file")
    with tempfile.TemporaryDirectory(prefix="autopipe-") as scratch:
        parts = []
        for place, package in enumerate(packages):
            folder = Path(scratch, str(place))
            folder.mkdir()
            parts.append(_read_part(package, folder))
        parts.sort(key=lambda part: (len(part.features), part.needs.processor.mcpu))
        _check_combinable(parts)
        work = Path(scratch, "combined")
        work.mkdir()
        predicate = _join_parts(parts, out.name.removesuffix(".tar"), work)
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".autopipe-") as temporary:
            write_package(predicate, work, Path(temporary), target := Path(temporary, "package"))
            target.replace(out)
    return [part.needs.processor.mcpu for part in parts]


@dataclass(frozen=True, slots=True)
class _Part:
    """An unpacked package."""

    package: Path
    folder: Path
    statement: Statement

    @property
    def needs(self) -> Needs:
        """Return the requirements of its build."""
        return self.statement.needs

    @property
    def features(self) -> frozenset[str]:
        """Return the features of its processor."""
        return frozenset(self.needs.processor.features)


def _read_part(package: Path, folder: Path) -> _Part:
    with opened(package) as contents:
        contents.agree()
        for name in contents.manifest.files:
            contents.extract(name, folder / name)
        return _Part(package, folder, contents.manifest)


def _check_combinable(parts: Sequence[_Part]) -> None:
    """Raise ConfigError unless the packages are builds of one model for different processors."""
    if not 1 < len(parts) <= MOST + 1:
        raise ConfigError(f"{len(parts)} packages: 2 to {MOST + 1} are combined")
    if len({part.package for part in parts}) < len(parts):
        raise ConfigError("a package is named twice")
    first = _list_common_traits(parts[0])
    packages: dict[frozenset[str], Path] = {}
    for part in parts:
        if part.needs.variants:
            raise ConfigError(f"{part.package}: combined already; name the packages that it is of")
        if part.needs.signature.device != "cpu":
            raise ConfigError(f"{part.package}: for {part.needs.signature.device}, not a processor")
        differ = [name for name, value in _list_common_traits(part).items() if value != first[name]]
        if differ:
            raise ConfigError(f"{part.package} and {parts[0].package} differ in {differ[0]}")
        if (same_features := packages.setdefault(part.features, part.package)) != part.package:
            raise ConfigError(f"{part.package} and {same_features} are for the same features")


def _list_common_traits(part: _Part) -> dict[str, object]:
    """Return the properties that have to be equal in all packages, by description."""
    signature, definition = part.needs.signature, part.statement.predicate.build_definition
    return {
        "the model": [
            used for used in definition.resolved_dependencies if isinstance(used, Source)
        ],
        "their inputs": (signature.inputs, signature.dimensions),
        "their outputs": signature.outputs,
        "the architecture": part.needs.processor.machine,
        "the version of TVM": part.needs.runtime,
    }


def _join_parts(parts: Sequence[_Part], name: str, work: Path) -> Predicate:
    """Write the files of all builds into a folder; return the combined provenance."""
    pool = _Pool()
    builds = []
    for place, part in enumerate(parts):
        prefix = f"v{place}." if place else ""
        own_names = (*list_own_libraries(part.needs), NODES)
        for file in _list_carried_files(part):
            _move_file(part, file, work / (prefix + file if file in own_names else file))
        builds.append(pool.add(prefix, part))
    pool.write(work / WEIGHTS)
    base, *other_builds = builds
    variants = tuple(
        Variant(
            needs=needs,
            configuration=part.statement.predicate.build_definition.external_parameters.configuration,
            builder=part.statement.predicate.run_details.builder.version,
        )
        for needs, part in zip(other_builds, parts[1:], strict=True)
    )
    predicate = parts[0].statement.predicate
    definition = predicate.build_definition
    dependencies = (
        used
        for part in parts
        for used in part.statement.predicate.build_definition.resolved_dependencies
    )
    combined_definition = definition.model_copy(
        update={
            "external_parameters": Request(
                pipeline=name, configuration=definition.external_parameters.configuration
            ),
            "internal_parameters": base.model_copy(update={"variants": variants}),
            "resolved_dependencies": tuple(dict.fromkeys(dependencies)),
        }
    )
    return predicate.model_copy(update={"build_definition": combined_definition})


def _list_carried_files(part: _Part) -> Iterator[str]:
    """Yield the files that are copied unchanged: libraries and their dependencies."""
    yield from (name for name in part.statement.files if name not in {COMPONENTS, WEIGHTS})


def _move_file(part: _Part, name: str, to: Path) -> None:
    source = part.folder / name
    if to.exists() and to.read_bytes() != source.read_bytes():
        raise ConfigError(f"{part.package}: its {name} is not that of the others")
    source.replace(to)


@dataclass(slots=True)
class _Pool:
    """Weights of all builds, without duplicates."""

    plan: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """Dtype and shape, by name."""
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    """Views of the weights in their packages, by name."""
    names: dict[str, str] = field(default_factory=dict)
    """Names in the pool, by the digest of the weight."""

    def add(self, prefix: str, part: _Part) -> Needs:
        """Add the weights of a build; return its requirements with their names in the pool."""
        signature, path = part.needs.signature, part.folder / WEIGHTS
        try:
            with path.open("rb") as file:
                data = map_bytes(file, 0, path.stat().st_size)
            pool_names = {
                name: self._add_weight(
                    prefix + name, weight, data, is_half=name in signature.halves
                )
                for name, weight in read_header(data.data).items()
            }
            return part.needs.model_copy(
                update={"signature": _rename_weights(signature, pool_names)}
            )
        except (ValueError, LookupError) as error:
            raise PackageError(f"{part.package}: {WEIGHTS}: {error}") from None

    def _add_weight(
        self, name: str, weight: PlacedWeight, data: np.ndarray, *, is_half: bool
    ) -> str:
        array = view_weight(data, weight)
        digest = hashlib.sha256(f"{weight.dtype} {weight.shape} {is_half} ".encode())
        digest.update(array.tobytes())
        pool_name = self.names.setdefault(digest.hexdigest(), name)
        if pool_name == name:
            self.plan[name], self.arrays[name] = (weight.dtype, weight.shape), array
        return pool_name

    def write(self, to: Path) -> None:
        """Write the weights in the format of packages."""
        with to.open("xb") as out:
            write_weights(out.write, self.plan, lambda name: self.arrays[name])


def _rename_weights(signature: Signature, names: Mapping[str, str]) -> Signature:
    entries = tuple(
        entry.model_copy(update={"weights": tuple(names[name] for name in entry.weights)})
        for entry in signature.entries
    )
    return signature.model_copy(
        update={
            "weights": tuple(names[name] for name in signature.weights),
            "entries": entries,
            "halves": tuple(sorted(names[name] for name in signature.halves)),
        }
    )
