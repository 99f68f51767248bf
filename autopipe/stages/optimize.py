"""Stage `optimize`: simplify the graph, convert layouts, and hoist computations on weights."""

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
"""Maximum float32 products that the console lists."""


class OptimizeStage(Stage, frozen=True):
    """Simplify the module and convert its layouts."""

    name: ClassVar[str] = "optimize"
    version: ClassVar[int] = 16
    produces: ClassVar[Kind] = Kind.MODULE
    needs: ClassVar[dict[str, Need]] = {"import": Need(Kind.MODEL)}
    runs_passes: ClassVar[bool] = True
    reads: ClassVar[frozenset[Facet]] = frozenset({Facet.TVM, Facet.TARGET})

    layout: dict[str, tuple[str, ...]]
    """Desired layouts by op; empty keeps the model's."""
    weights: str | None = None
    """The dtype to which weights of matrix products are rounded; None keeps theirs."""
    compute: str | None = None
    """The dtype to which operands of products are rounded; None keeps theirs."""

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self:  # noqa: ARG003 - reads no file
        """Create the stage from the layouts and numerics of the pipeline."""
        numerics = pipeline.numerics
        return cls(layout=pipeline.layout or {}, weights=numerics.weights, compute=numerics.compute)

    def run(self, ctx: Context) -> str:
        """Write the optimized module, the transform of its weights, and a report of its layouts.

        Raises TargetError for bfloat16 products on a processor without them.
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
        modules = {"module.json": optimized.module, "transform.json": optimized.transform}
        module_io.save_modules(modules, ctx.out)
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
            wide = [_describe_wide_product(one, model.weights) for one in products.kept]
            last = lowering.is_channels_last(self.layout)
            report |= {"short": products.short, "wide": wide, "channels_last": last}
            summary += f", {products.short} of {products.short + len(wide)} products in bfloat16"
            if wide:
                ctx.emit(Warn(stage=self.name, message=f"in float32 stay {_join_first(wide)}"))
        module_io.save_json(report, ctx.out / "optimize.json")
        return summary

    def unkeyed(self) -> frozenset[str]:
        """Exclude the settings of weights and products that are unset."""
        settings = {"weights": self.weights, "compute": self.compute}
        return frozenset(name for name, value in settings.items() if not value)


def _describe_wide_product(product: "WideProduct", weights: Sequence[str]) -> str:
    """Format a product that stays in float32, with the reason."""
    of = "" if product.weight is None else f" with {weights[product.weight]}"
    return f"{product.op}{of}: {product.reason}"


def _join_first(items: Sequence[str]) -> str:
    """Format the first items of a list, and the number of others; optimize.json has all."""
    text = "; ".join(items[:_SHOWN])
    return f"{text}; and {len(items) - _SHOWN} more" if len(items) > _SHOWN else text


def _summarize_layouts(layouts: Mapping[str, Mapping[str, int]], transposes: int) -> str:
    parts = [
        f"{count} {op.removeprefix('nn.')} in {layout}"
        for op, found in layouts.items()
        for layout, count in found.items()
    ]
    return ", ".join([*parts, f"{transposes} transposes left"])
