"""Read the facts of a build from a package; its digests are checked, and nothing is run."""

from collections.abc import Iterator
from pathlib import Path

from autopipe.artifacts.signature import Signature
from autopipe.comparison.build import Build, BuiltTask, Fields, flatten_document
from autopipe.config.dimension import format_sizes
from autopipe.lock.recognize import FileKind
from autopipe.packaging.contents import opened
from autopipe.packaging.manifest import PackagedTask
from autopipe.packaging.provenance import Source, Statement
from autopipe.packaging.variants import list_builds
from autopipe.store.files import sha256

_NAMES = {"apache-tvm": "tvm", "apache-tvm-ffi": "tvm_ffi"}
"""Names of packages in a lock."""


def read_package(path: Path) -> Build:
    """Check the digests of a package, and build its facts.

    Raises PackageError for a damaged or hostile package.
    """
    with opened(path) as contents:
        manifest = contents.manifest
        for name in manifest.files:
            contents.extract(name)
        contents.agree()
        tasks = tuple(map(_describe_task, manifest.needs.tasks))
    return Build(
        kind=FileKind.PACKAGE,
        file=str(path),
        pipeline=manifest.name,
        facts=dict(_list_facts(manifest, path)),
        tasks=tasks,
    )


def _list_facts(manifest: Statement, path: Path) -> Iterator[tuple[str, Fields]]:
    needs = manifest.needs
    processor = needs.processor.model_dump(mode="json")
    definition = manifest.predicate.build_definition
    configuration = dict(flatten_document(definition.external_parameters.configuration))
    yield "configuration", configuration | dict(_list_dimension_facts(needs.signature))
    variants = {f"variant.{one.needs.processor.mcpu}": one.needs.signature.threads
                for one in needs.variants}  # fmt: skip
    yield "target", processor | {"num_cores": needs.signature.threads} | variants
    yield "versions", dict(_list_versions(manifest))
    yield "sources", dict(_list_model_digests(manifest))
    sizes = {name: file.size for name, file in manifest.files.items()}
    yield "size", sizes | {"package": path.stat().st_size}
    yield (
        "accuracy",
        {f"{prefix}verification": build.verification for prefix, build in list_builds(needs)},
    )
    digests = {name: file.sha256 for name, file in manifest.files.items()}
    yield "artifacts", digests | {f"{manifest.name}.tar": sha256(path.resolve())}


def _list_dimension_facts(signature: Signature) -> Iterator[tuple[str, object]]:
    """Yield the ranges of dynamic dimensions, and the sizes of each specialized library."""
    for name, dimension in signature.dimensions.items():
        yield f"takes.{name}", dimension.range_text
    for entry in signature.entries:
        yield f"takes.{entry.library}", format_sizes(entry.sizes)


def _list_versions(manifest: Statement) -> Iterator[tuple[str, object]]:
    needs = manifest.needs
    yield from ((_NAMES.get(name, name), version) for name, version in needs.runtime.items())
    yield from needs.libraries.items()
    yield from manifest.predicate.run_details.builder.version.items()


def _list_model_digests(manifest: Statement) -> Iterator[tuple[str, object]]:
    """Yield the digest of the model, `import.model` in a lock."""
    for dependency in manifest.predicate.build_definition.resolved_dependencies:
        if isinstance(dependency, Source):
            yield "import.model", dependency.digest.sha256


def _describe_task(task: PackagedTask) -> BuiltTask:
    decisions = task.model_dump(include={"calls", "engine", "implementation"})
    return BuiltTask(task.name, task.workload, decisions, None)
