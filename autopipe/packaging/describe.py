"""Says of a build who made it from what: as much as is the same whenever it is made again."""

import json
from pathlib import Path
from typing import Any, Final

from autopipe import libraries
from autopipe.compiler.library.signature import Signature
from autopipe.compiler.target import cpu, gpu
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

_TASK: Final = ("name", "workload", "calls", "engine", "implementation", "seconds")
"""What is told of a task. How checking and building it went is another thing each time."""

_TVM: Final = {"tvm": "apache-tvm", "tvm_ffi": "apache-tvm-ffi"}


def describe(request: Request, ctx: Context) -> Predicate:
    """Return the provenance of the build in the context of the stage *package*."""
    library = _read(ctx.inputs["build"] / "library.json")
    definition = Definition(
        external_parameters=request,
        internal_parameters=_needs(ctx, library),
        resolved_dependencies=(_source(ctx.inputs["import"]), *_packages(ctx, library)),
    )
    versions = {"autopipe": ctx.facts[Facet.PACKAGES]["autopipe"], **library["versions"]}
    tools = {name: str(versions[name]) for name in versions.keys() - _TVM if versions[name]}
    return Predicate(
        build_definition=definition, run_details=Details(builder=Builder(version=tools))
    )


def _needs(ctx: Context, library: dict[str, Any]) -> Needs:
    target = ctx.facts[Facet.TARGET]
    return Needs(
        processor=Processor(
            machine=cpu.machine_of(target),
            mcpu=str(target["mcpu"]),
            features=cpu.required(target),
            gpu=gpu.required(target),
        ),
        runtime=installed_runtime(),
        libraries=library["libraries"],
        signature=Signature.of(library),
        tasks=tuple({key: row[key] for key in _TASK if key in row} for row in library["tasks"]),
        verification=_verification(ctx.inputs.get("verify")),
    )


def _source(model: Path) -> Source:
    document = _read(model / "model.json")
    return Source(
        digest=Sha256(sha256=document["source_sha256"]),
        annotations=Origin(synthesized=document["synthesized"]),
    )


def _packages(ctx: Context, library: dict[str, Any]) -> list[Ingredient]:
    """Describe the Python packages that took part."""
    versions = {package: library["versions"][name] for name, package in _TVM.items()}
    for facet in (Facet.FRONTEND, Facet.EXTENSIONS, Facet.PACKAGES):
        versions |= ctx.facts[facet]
    for name, version in library["libraries"].items():
        used = libraries.named(name)
        if used and used.distribution:
            versions[used.distribution] = version
    del versions["autopipe"]
    return [ingredient(name, str(versions[name])) for name in sorted(versions) if versions[name]]


def _verification(report: Path | None) -> str | None:
    """Return what `verify.json` says, without what may differ from run to run."""
    if report is None:
        return None
    document = _read(report / "verify.json")
    checked = sum(not case["skipped"] for case in document["cases"])
    return f"{document['reference']} {document['reference_version']}, {checked} cases"


def _read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document
