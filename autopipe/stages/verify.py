"""Stage *verify*: compare the outputs of the build with those of a reference runtime."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Self

from autopipe.config.pipeline import Pipeline
from autopipe.config.verify import Verify
from autopipe.environment.facet import Facet
from autopipe.pipeline.counted import Watch
from autopipe.pipeline.events import Measured, Warn
from autopipe.pipeline.stage import Context, Need, Stage
from autopipe.stages.samples import check_sample_file
from autopipe.store.artifact import Kind


class VerifyStage(Stage, frozen=True):
    """Compares the build with a reference runtime; a build that fails is not published."""

    name: ClassVar[str] = "verify"
    version: ClassVar[int] = 8
    produces: ClassVar[Kind] = Kind.REPORT
    seconds: ClassVar[float | None] = 4 * 3600.0
    needs: ClassVar[Mapping[str, Need]] = {
        "import": Need(Kind.MODEL),
        "build": Need(Kind.LIBRARY),
    }
    reads: ClassVar[frozenset[Facet]] = frozenset({Facet.TVM, Facet.TARGET, Facet.REFERENCE})

    options: Verify
    """Section `verify` of the pipeline file."""
    samples: dict[str, Path] = {}
    """Files of real inputs, as the pipeline file names them; they enter the key by content."""

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self | None:
        """Create the stage, or return None for `verify: null`.

        Raises ConfigError for inputs that do not fit the model: now, not after tuning.
        """
        if pipeline.verify is None:
            return None
        names = pipeline.verify.inputs
        return cls(
            options=pipeline.verify,
            samples={
                name: check_sample_file(base / name, "verify.inputs", pipeline) for name in names
            },
        )

    def run(self, ctx: Context) -> str:
        """Write `verify.json`; for a wrong build, emit its content and raise WrongBuildError."""
        from autopipe.compiler.target import machine
        from autopipe.verification.check import verify_build
        from autopipe.verification.contained_build import ContainedBuild

        target = ctx.facts[Facet.TARGET]
        machine.check(target, self.name)
        with TemporaryDirectory(dir=ctx.work) as scratch:
            work = Path(scratch)
            with ContainedBuild(ctx.inputs["build"], work, target) as build:
                watch = Watch(self.name, ctx.emit)
                watch.begin("computing the reference")
                model = ctx.inputs["import"]
                result = verify_build(
                    build, model, self.options, work, self.samples, watch=watch,
                    tell_failure=lambda found: ctx.emit(
                        Measured(stage=self.name, document=found.model_dump(mode="json"))
                    ),
                )  # fmt: skip
        for message in result.warnings:
            ctx.emit(Warn(stage=self.name, message=message))
        result.write(ctx.out)
        return result.summary()

    def sources(self) -> Mapping[str, Path]:
        """Return the files of real inputs."""
        return {f"inputs:{name}": path for name, path in self.samples.items()}

    def unkeyed(self) -> frozenset[str]:
        """Exclude the paths: the content of the files is the key."""
        return frozenset({"samples"})
