"""Stage `optimize`: graph clean-up, layout conversion, and work on weights lifted out."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from autopipe.artifacts.model import ImportedModel
from autopipe.config import Pipeline
from autopipe.environment.facet import Facet
from autopipe.pipeline.events import Warn
from autopipe.pipeline.stage import Context, Need, Stage
from autopipe.store.artifact import Kind


class OptimizeStage(Stage, frozen=True):
    """Simplify the module and convert its layouts."""

    name: ClassVar[str] = "optimize"
    version: ClassVar[int] = 6
    produces: ClassVar[Kind] = Kind.MODULE
    needs: ClassVar[dict[str, Need]] = {"import": Need(Kind.MODEL)}
    reads: ClassVar[frozenset[Facet]] = frozenset({Facet.TVM, Facet.TARGET})

    layout: dict[str, tuple[str, ...]]
    """Desired layouts by op; empty keeps the model's."""
    weights: str | None = None
    """What weights of matrix products are rounded to; None leaves them."""

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self:  # noqa: ARG003 - reads no file
        """Take the layouts of the pipeline, and what it says of weights."""
        return cls(layout=pipeline.layout or {}, weights=pipeline.numerics.weights)

    def run(self, ctx: Context) -> str:
        """Write the optimized module, the transform of its weights, and what layouts it has."""
        from autopipe.compiler import module_io, passes
        from autopipe.compiler.target.target import tvm_target

        source = ctx.inputs["import"]
        model = ImportedModel.read(source)
        optimized = passes.optimize(
            module_io.load_module(source / "module.json"),
            model.arguments,
            self.layout,
            tvm_target(ctx.facts[Facet.TARGET]),
            lambda message: ctx.emit(Warn(stage=self.name, message=message)),
            round_weights=self.weights is not None,
        )
        rounded = [model.weights[at] for at in optimized.rounded]
        module_io.save_module(optimized.module, ctx.out / "module.json")
        module_io.save_module(optimized.transform, ctx.out / "transform.json")
        report = {
            "layouts": optimized.layout.layouts,
            "transposes": optimized.layout.transposes,
            "desired": self.layout,
            **({"rounded": rounded} if self.weights else {}),
        }
        module_io.save_json(report, ctx.out / "optimize.json")
        summary = _summary(optimized.layout.layouts, optimized.layout.transposes)
        return f"{summary}, {len(rounded)} weights in {self.weights}" if self.weights else summary

    def unkeyed(self) -> frozenset[str]:
        """Return what is said of weights, where that is nothing."""
        return frozenset() if self.weights else frozenset({"weights"})


def _summary(layouts: Mapping[str, Mapping[str, int]], transposes: int) -> str:
    parts = [
        f"{count} {op.removeprefix('nn.')} in {layout}"
        for op, found in layouts.items()
        for layout, count in found.items()
    ]
    return ", ".join([*parts, f"{transposes} transposes left"])
