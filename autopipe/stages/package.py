"""Stage *package*: one file to ship."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Final, Self

from autopipe.config.pipeline import Pipeline
from autopipe.environment.facet import Facet
from autopipe.pipeline.counted import Watch
from autopipe.pipeline.stage import Context, Need, Stage
from autopipe.store.artifact import Kind

_PROVENANCE: Final = {"version", "model", "target", "layout", "fusion", "numerics"}
"""Sections of the pipeline file that a package records. The search for schedules is recorded in the
lock: equal schedules give an equal package, however they were found."""


class PackageStage(Stage, frozen=True):
    """Packs the build; the same build gives the same bytes."""

    name: ClassVar[str] = "package"
    version: ClassVar[int] = 5
    produces: ClassVar[Kind] = Kind.PACKAGE
    needs: ClassVar[Mapping[str, Need]] = {
        "import": Need(Kind.MODEL),
        "build": Need(Kind.LIBRARY),
        "verify": Need(Kind.REPORT, optional=True),
    }
    reads: ClassVar[frozenset[Facet]] = frozenset(
        {Facet.TVM, Facet.TARGET, Facet.FRONTEND, Facet.EXTENSIONS, Facet.PACKAGES}
    )

    pipeline: str
    """Name of the pipeline; the package is called `<name>.tar`."""
    configuration: dict[str, Any]
    """The sections that determine the build, with defaults and overrides, without the path of the
    model."""

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self | None:
        """Create the stage, or return None for `package: null`."""
        del base
        if pipeline.package is None:
            return None
        configuration = pipeline.model_dump(mode="json", include=_PROVENANCE)
        del configuration["model"]["path"]
        return cls(pipeline=pipeline.name, configuration=configuration)

    def run(self, ctx: Context) -> str:
        """Write `<name>.tar`."""
        from autopipe.compiler.step_counter import count_with
        from autopipe.packaging.describe import describe_provenance
        from autopipe.packaging.pack import write_package
        from autopipe.packaging.provenance import Request

        package = ctx.out / f"{self.pipeline}.tar"
        request = Request(pipeline=self.pipeline, configuration=self.configuration)
        counting = count_with(Watch(self.name, ctx.emit).count)
        with TemporaryDirectory(dir=ctx.work) as scratch, counting:
            write_package(
                describe_provenance(request, ctx), ctx.inputs["build"], Path(scratch), package
            )
        return f"{package.name}, {package.stat().st_size / 2**20:.1f} MiB"
