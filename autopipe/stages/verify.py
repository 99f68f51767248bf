"""Stage *verify*: does the build compute what the model computes?"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Self

from autopipe.config import Pipeline, Verify
from autopipe.environment.facet import Facet
from autopipe.pipeline.events import Warn
from autopipe.pipeline.stage import Context, Need, Stage
from autopipe.store.artifact import Kind


class VerifyStage(Stage, frozen=True):
    """Compares the build with a reference runtime; a build that fails is not published."""

    name: ClassVar[str] = "verify"
    version: ClassVar[int] = 2
    produces: ClassVar[Kind] = Kind.REPORT
    seconds: ClassVar[float | None] = 4 * 3600.0
    needs: ClassVar[Mapping[str, Need]] = {
        "import": Need(Kind.MODEL),
        "build": Need(Kind.LIBRARY),
    }
    reads: ClassVar[frozenset[Facet]] = frozenset({Facet.TVM, Facet.TARGET, Facet.REFERENCE})

    options: Verify
    """Section `verify` of the pipeline file."""

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self | None:
        """Return the stage, or None for `verify: null`."""
        del base
        return cls(options=pipeline.verify) if pipeline.verify else None

    def run(self, ctx: Context) -> str:
        """Write `verify.json`; raise GateError where the build is wrong."""
        from autopipe.compiler.library.runtime import load_artifact
        from autopipe.compiler.target import machine
        from autopipe.verification.check import verify

        machine.check(ctx.facts[Facet.TARGET])
        model = load_artifact(ctx.inputs["build"])
        with TemporaryDirectory(dir=ctx.work) as scratch:
            result = verify(model, ctx.inputs["import"], self.options, Path(scratch))
        for message in result.warnings:
            ctx.emit(Warn(stage=self.name, message=message))
        result.write(ctx.out)
        return result.summary()
