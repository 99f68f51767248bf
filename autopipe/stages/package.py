"""Stage *package*: one file to ship."""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self

from autopipe.config import Pipeline
from autopipe.pipeline import canonical
from autopipe.pipeline.stage import Context, Facet, Kind, Need, Stage

_DECISIVE = {
    "version", "model", "target", "layout", "fusion", "tasks", "tuning", "schedules", "numerics",
}  # fmt: skip

_ASIDE = ("rejected", "failures")


class Package(Stage, frozen=True):
    """Packs the build; the same build gives the same bytes."""

    name: ClassVar[str] = "package"
    version: ClassVar[int] = 2
    produces: ClassVar[Kind] = Kind.PACKAGE
    needs: ClassVar[Mapping[str, Need]] = {
        "import": Need(Kind.MODEL),
        "build": Need(Kind.LIBRARY),
        "verify": Need(Kind.REPORT, optional=True),
    }
    reads: ClassVar[frozenset[Facet]] = frozenset({Facet.TVM, Facet.TARGET})

    pipeline: str
    """Name of the pipeline; the package is called `<name>.tar`."""
    digest: str
    """Digest of the sections that decide the build, defaults and overrides included."""

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self | None:
        """Return the stage, or None for `package: null`."""
        del base
        if pipeline.package is None:
            return None
        digest = canonical.digest(pipeline.model_dump(mode="json", include=_DECISIVE))
        return cls(pipeline=pipeline.name, digest=digest)

    def run(self, ctx: Context) -> str:
        """Write `<name>.tar`."""
        from autopipe.compiler import cpu, gpu
        from autopipe.compiler.runtime import Signature
        from autopipe.packaging.manifest import Manifest, Processor, Source, installed_runtime
        from autopipe.packaging.pack import called_by, describe, pack, verification

        target = ctx.facts[Facet.TARGET]
        library = ctx.inputs["build"]
        model = json.loads((ctx.inputs["import"] / "model.json").read_text(encoding="utf-8"))
        manifest = Manifest(
            name=self.pipeline,
            source=Source(
                model=model["source_sha256"],
                synthesized=model["synthesized"],
                pipeline=self.digest,
            ),
            processor=Processor(
                machine=cpu.machine_of(target),
                mcpu=str(target["mcpu"]),
                features=cpu.required(target),
                gpu=gpu.required(target),
            ),
            runtime=installed_runtime(),
            libraries=called_by(library),
            signature=Signature.read(library),
            tasks=_portable(library),
            verification=verification(ctx.inputs.get("verify")),
            files=describe(library),
        )
        package = ctx.out / f"{self.pipeline}.tar"
        with TemporaryDirectory(dir=ctx.work) as scratch:
            pack(manifest, library, Path(scratch), package)
        return f"{package.name}, {package.stat().st_size / 2**20:.1f} MiB"


def _portable(library: Path) -> tuple[dict[str, Any], ...]:
    """Return what `library.json` says of the tasks, but not where this machine put things aside."""
    tasks = json.loads((library / "library.json").read_text(encoding="utf-8"))["tasks"]
    for entry in (each for task in tasks for kind in _ASIDE for each in task.get(kind, ())):
        entry.pop("folder", None)
    return tuple(tasks)
