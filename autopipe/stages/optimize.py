"""Stage `optimize`: graph clean-up, layout conversion, and work on weights lifted out."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Self

from autopipe.config.pipeline import Pipeline
from autopipe.environment.facet import Facet
from autopipe.pipeline.events import Warn
from autopipe.pipeline.stage import Context, Need, Stage
from autopipe.stages.shown_passes import show_passes
from autopipe.store.artifact import Kind

if TYPE_CHECKING:
    from autopipe.compiler.passes.round_products import WideProduct

_SHOWN: Final = 3
"""Products in float32 that are named on the console."""


class OptimizeStage(Stage, frozen=True):
    """Simplify the module and convert its layouts."""

    name: ClassVar[str] = "optimize"
    version: ClassVar[int] = 14
    produces: ClassVar[Kind] = Kind.MODULE
    needs: ClassVar[dict[str, Need]] = {"import": Need(Kind.MODEL)}
    runs_passes: ClassVar[bool] = True
    reads: ClassVar[frozenset[Facet]] = frozenset({Facet.TVM, Facet.TARGET})

    layout: dict[str, tuple[str, ...]]
    """Desired layouts by op; empty keeps the model's."""
    weights: str | None = None
    """What weights of matrix products are rounded to; None leaves them."""
    compute: str | None = None
    """What operands of products are rounded to; None leaves them."""

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self:  # noqa: ARG003 - reads no file
        """Take the layouts of the pipeline, and what it says of weights."""
        numerics = pipeline.numerics
        return cls(layout=pipeline.layout or {}, weights=numerics.weights, compute=numerics.compute)

    def run(self, ctx: Context) -> str:
        """Write the optimized module, the transform of its weights, and what layouts it has.

        Raises TargetError for products in bfloat16 on a processor that has none.
        """
        from autopipe.artifacts.model import ImportedModel
        from autopipe.compiler import lowering, module_io
        from autopipe.compiler.target import cpu
        from autopipe.compiler.target.target import make_target

        if self.compute:
            cpu.check_products(ctx.facts[Facet.TARGET])
        source = ctx.inputs["import"]
        model = ImportedModel.read(source)
        with show_passes(ctx, self.name):
            optimized = lowering.optimize(
                module_io.load_module(source / "module.json"),
                model.arguments,
                self.layout,
                make_target(ctx.facts[Facet.TARGET]),
                lambda message: ctx.emit(Warn(stage=self.name, message=message)),
                round_weights=self.weights is not None,
                round_products=self.compute is not None,
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
        summary = _summarize_layouts(optimized.layout.layouts, optimized.layout.transposes)
        if self.weights:
            summary += f", {len(rounded)} weights in {self.weights}"
        if (products := optimized.products) is not None:
            kept = [_describe_wide_product(one, model.weights) for one in products.kept]
            last = lowering.is_channels_last(self.layout)
            report |= {"short": products.short, "wide": kept, "channels_last": last}
            summary += f", {products.short} of {products.short + len(kept)} products in bfloat16"
            if kept:
                ctx.emit(Warn(stage=self.name, message=f"in float32 stay {_join_first(kept)}"))
        module_io.save_json(report, ctx.out / "optimize.json")
        return summary

    def unkeyed(self) -> frozenset[str]:
        """Return what is said of weights and products, where that is nothing."""
        said = {"weights": self.weights, "compute": self.compute}
        return frozenset(name for name, value in said.items() if not value)


def _describe_wide_product(product: "WideProduct", weights: Sequence[str]) -> str:
    """Say which product stays in float32, and why."""
    of = "" if product.weight is None else f" with {weights[product.weight]}"
    return f"{product.op}{of}: {product.reason}"


def _join_first(kept: Sequence[str]) -> str:
    """Return the first of a list, and how many follow; optimize.json has all."""
    shown = "; ".join(kept[:_SHOWN])
    return f"{shown}; and {len(kept) - _SHOWN} more" if len(kept) > _SHOWN else shown


def _summarize_layouts(layouts: Mapping[str, Mapping[str, int]], transposes: int) -> str:
    parts = [
        f"{count} {op.removeprefix('nn.')} in {layout}"
        for op, found in layouts.items()
        for layout, count in found.items()
    ]
    return ", ".join([*parts, f"{transposes} transposes left"])
