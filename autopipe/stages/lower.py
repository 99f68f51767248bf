"""Stage `lower`: ops become fused PrimFuncs, the one module that tuning and build share."""

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from autopipe.config.dimension import Dimension, list_likely_sizes
from autopipe.config.fusion import Fusion
from autopipe.config.pipeline import Pipeline
from autopipe.environment.facet import Facet
from autopipe.pipeline.events import Warn
from autopipe.pipeline.stage import Context, Need, Stage
from autopipe.stages.shown_passes import show_passes
from autopipe.store.artifact import Kind

if TYPE_CHECKING:
    import tvm

    from autopipe.compiler.fusion.scope import Refusal, Scope
    from autopipe.schedules.conditions import Conditions


class LowerStage(Stage, frozen=True):
    """Legalize and fuse."""

    name: ClassVar[str] = "lower"
    version: ClassVar[int] = 20
    produces: ClassVar[Kind] = Kind.LOWERED
    needs: ClassVar[dict[str, Need]] = {"optimize": Need(Kind.MODULE)}
    runs_passes: ClassVar[bool] = True
    reads: ClassVar[frozenset[Facet]] = frozenset({Facet.TVM, Facet.TARGET, Facet.TEMPLATES})

    fast_algorithms: bool
    """Whether elementary functions may round differently from libm's."""
    fusion: Fusion
    """Rules on which ops are fused into one task, and which are not."""
    dimensions: dict[str, Dimension] = {}
    """Dynamic dimensions by name: the module is also specialized for each likely combination."""

    found: dict[str, int] = {}
    """Expected data-dependent sizes, by the name of the node that computes them."""

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self:  # noqa: ARG003 - reads no file
        """Create the stage from the numerics, fusion rules and dimensions of the pipeline."""
        return cls(
            fast_algorithms=pipeline.numerics.fast_algorithms,
            fusion=pipeline.fusion,
            dimensions=dict(pipeline.model.dimensions),
            found=dict(pipeline.model.found),
        )

    def unkeyed(self) -> frozenset[str]:
        """Exclude dynamic sizes where the model has none."""
        return frozenset(name for name in ("dimensions", "found") if not getattr(self, name))

    def run(self, ctx: Context) -> str:
        """Write the lowered module; attributes of its PrimFuncs name their ops.

        Raises ConfigError if a rule names an op that Relax does not have.
        """
        from autopipe.artifacts.lowering import WHOLE, SizedModules
        from autopipe.compiler import module_io
        from autopipe.compiler.dynamic_sizes import fix_sizes, kernel_sizes
        from autopipe.compiler.step_counter import join_counts
        from autopipe.schedules.conditions import Conditions
        from autopipe.schedules.schedulable import open_refusal_check

        module = module_io.load_module(ctx.inputs["optimize"] / "module.json")
        conditions = Conditions.of(ctx.facts[Facet.TARGET], fast_algorithms=self.fast_algorithms)
        sized_modules = SizedModules.of(list_likely_sizes(self.dimensions))
        with (
            open_refusal_check(conditions) as refusal,
            show_passes(ctx, self.name),
            join_counts(1 + len(sized_modules.modules)),
        ):
            scope = self._choose_fusion_scope(ctx, conditions.target, refusal)
            lowered = self._note_likely_sizes(self._lower_module(module, conditions, scope))
            module_io.save_module(lowered, ctx.out / WHOLE)
            for sized_module in sized_modules.modules:
                bound = fix_sizes.bind_sizes(
                    module, kernel_sizes.count_multiples(self.dimensions, sized_module.sizes)
                )
                at = self._note_likely_sizes(self._lower_module(bound, conditions, scope))
                module_io.save_module(at, ctx.out / sized_module.file)
        if sized_modules.modules:
            sized_modules.write(ctx.out)
        count = f"{len(module_io.list_prim_funcs(lowered))} fused functions"
        return (
            f"{count}, and at {len(sized_modules.modules)} likely sizes"
            if sized_modules.modules
            else count
        )

    def _note_likely_sizes(self, lowered: "tvm.IRModule") -> "tvm.IRModule":
        """Annotate each kernel of dynamic shapes with its specialized sizes."""
        from autopipe.compiler.dynamic_sizes import kernel_sizes

        dynamic_sizes = kernel_sizes.DynamicSizes.of(self.dimensions).also(lowered, self.found)
        return kernel_sizes.annotate_sizes(lowered, dynamic_sizes)

    def _lower_module(
        self, module: "tvm.IRModule", conditions: "Conditions", scope: "Scope | None"
    ) -> "tvm.IRModule":
        from functools import partial

        from autopipe.compiler import lowering
        from autopipe.schedules.templates import rolling

        return lowering.lower(
            module,
            conditions.target,
            fast_algorithms=self.fast_algorithms,
            scope=scope,
            pays=partial(rolling.is_faster, hardware=conditions.hardware),
        )

    def _choose_fusion_scope(
        self, ctx: Context, target: "tvm.target.Target", refusal: "Refusal"
    ) -> "Scope | None":
        """Create the changes of fusion: rules, and refusals on a GPU, which needs schedules."""
        from autopipe.compiler.fusion.fusion_rules import FusionRules
        from autopipe.compiler.fusion.scope import Scope, check_rules
        from autopipe.compiler.target.target import backend_of

        rules = FusionRules(self.fusion.join, self.fusion.apart)
        check_rules(rules)
        runs_loops = backend_of(target).runs_unscheduled_loops
        if not rules and runs_loops:
            return None
        return Scope(
            rules,
            refusal,
            lambda message: ctx.emit(Warn(stage=self.name, message=message)),
            try_all=not runs_loops,
        )
