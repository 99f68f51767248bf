"""Describe the provenance of a build: everything that is equal in every repetition."""

from pathlib import Path
from typing import Final

from autopipe import libraries
from autopipe.artifacts.library import BuiltLibrary
from autopipe.artifacts.model import ImportedModel
from autopipe.artifacts.verification import Verification
from autopipe.backends import find_backend
from autopipe.compiler.target import cpu
from autopipe.environment.facet import Facet
from autopipe.packaging.manifest import Needs, PackagedTask, Processor, read_installed_runtime
from autopipe.packaging.provenance import (
    Builder,
    Definition,
    Details,
    Ingredient,
    Origin,
    Predicate,
    Request,
    Sha256,
    Source,
    describe_ingredient,
)
from autopipe.pipeline.stage import Context

_TVM: Final = {"tvm": "apache-tvm", "tvm_ffi": "apache-tvm-ffi"}


def describe_provenance(request: Request, ctx: Context) -> Predicate:
    """Return the provenance of the build in the context of the stage *package*."""
    library = BuiltLibrary.read(ctx.inputs["build"])
    definition = Definition(
        external_parameters=request,
        internal_parameters=_describe_needs(ctx, library),
        resolved_dependencies=(
            _describe_source(ctx.inputs["import"]),
            *_list_ingredients(ctx, library),
        ),
    )
    versions = {"autopipe": ctx.facts[Facet.PACKAGES]["autopipe"], **library.versions}
    tools = {name: str(versions[name]) for name in versions.keys() - _TVM if versions[name]}
    return Predicate(
        build_definition=definition, run_details=Details(builder=Builder(version=tools))
    )


def _describe_needs(ctx: Context, library: BuiltLibrary) -> Needs:
    target = ctx.facts[Facet.TARGET]
    return Needs(
        processor=Processor(
            machine=cpu.find_architecture(target),
            mcpu=str(target["mcpu"]),
            features=cpu.list_required_features(target),
            gpu=find_backend(target).required_architecture(target),
        ),
        runtime=read_installed_runtime(),
        libraries=library.libraries,
        signature=library.signature,
        tasks=tuple(PackagedTask.model_validate(dict(task)) for task in library.tasks),
        verification=_summarize_verification(ctx.inputs.get("verify")),
        rounded=library.rounded,
    )


def _describe_source(model: Path) -> Source:
    imported_model = ImportedModel.read(model)
    return Source(
        digest=Sha256(sha256=imported_model.source_sha256),
        annotations=Origin(synthesized=imported_model.synthesized),
    )


def _list_ingredients(ctx: Context, library: BuiltLibrary) -> list[Ingredient]:
    """Describe the Python packages that the build depends on."""
    versions: dict[str, object] = {
        package: library.versions[name] for name, package in _TVM.items()
    }
    for facet in (Facet.FRONTEND, Facet.EXTENSIONS, Facet.PACKAGES):
        versions |= ctx.facts[facet]
    for name, version in library.libraries.items():
        library_package = libraries.find_library(name)
        if library_package and library_package.distribution:
            versions[library_package.distribution] = version
    del versions["autopipe"]
    return [
        describe_ingredient(name, str(versions[name]))
        for name in sorted(versions)
        if versions[name]
    ]


def _summarize_verification(report: Path | None) -> str | None:
    """Describe reference and extent of the verification, which are equal in every run."""
    if report is None:
        return None
    verification = Verification.read(report)
    return f"{verification.reference} {verification.reference_version}, {verification.extent}"
