"""Says of a build who made it from what: as much as is the same whenever it is made again."""

from pathlib import Path
from typing import Final

from autopipe import libraries
from autopipe.artifacts.library import BuiltLibrary
from autopipe.artifacts.model import ImportedModel
from autopipe.artifacts.verification import Verification
from autopipe.backends import of_target
from autopipe.compiler.target import cpu
from autopipe.environment.facet import Facet
from autopipe.packaging.manifest import Needs, Processor, installed_runtime
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
    ingredient,
)
from autopipe.pipeline.stage import Context

_TASK: Final = {"name", "workload", "calls", "engine", "implementation"}
"""What is told of a task. Its time, and how checking and building it went, differ each time."""

_TVM: Final = {"tvm": "apache-tvm", "tvm_ffi": "apache-tvm-ffi"}


def describe(request: Request, ctx: Context) -> Predicate:
    """Return the provenance of the build in the context of the stage *package*."""
    library = BuiltLibrary.read(ctx.inputs["build"])
    definition = Definition(
        external_parameters=request,
        internal_parameters=_needs(ctx, library),
        resolved_dependencies=(_source(ctx.inputs["import"]), *_packages(ctx, library)),
    )
    found = {"autopipe": ctx.facts[Facet.PACKAGES]["autopipe"], **library.versions}
    tools = {name: str(found[name]) for name in found.keys() - _TVM if found[name]}
    return Predicate(
        build_definition=definition, run_details=Details(builder=Builder(version=tools))
    )


def _needs(ctx: Context, library: BuiltLibrary) -> Needs:
    target = ctx.facts[Facet.TARGET]
    return Needs(
        processor=Processor(
            machine=cpu.machine_of(target),
            mcpu=str(target["mcpu"]),
            features=cpu.required(target),
            gpu=of_target(target).required_architecture(target),
        ),
        runtime=installed_runtime(),
        libraries=library.libraries,
        signature=library.signature,
        tasks=tuple(task.model_dump(mode="json", include=_TASK) for task in library.tasks),
        verification=_verification(ctx.inputs.get("verify")),
        rounded=library.rounded,
    )


def _source(model: Path) -> Source:
    imported = ImportedModel.read(model)
    return Source(
        digest=Sha256(sha256=imported.source_sha256),
        annotations=Origin(synthesized=imported.synthesized),
    )


def _packages(ctx: Context, library: BuiltLibrary) -> list[Ingredient]:
    """Describe the Python packages that took part."""
    found: dict[str, object] = {package: library.versions[name] for name, package in _TVM.items()}
    for facet in (Facet.FRONTEND, Facet.EXTENSIONS, Facet.PACKAGES):
        found |= ctx.facts[facet]
    for name, version in library.libraries.items():
        known = libraries.named(name)
        if known and known.distribution:
            found[known.distribution] = version
    del found["autopipe"]
    return [ingredient(name, str(found[name])) for name in sorted(found) if found[name]]


def _verification(report: Path | None) -> str | None:
    """Return what verification showed, without what may differ from run to run."""
    if report is None:
        return None
    found = Verification.read(report)
    return f"{found.reference} {found.reference_version}, {found.extent}"
