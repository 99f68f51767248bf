"""Stage `lower`: ops become fused PrimFuncs, the one module that tuning and build share."""

import os
from collections.abc import Callable
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
    version: ClassVar[int] = 21
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

        Children lower it for each likely size meanwhile. Raises ConfigError if a rule names an op
        that Relax does not have.
        """
        from autopipe.artifacts.lowering import WHOLE, SizedModules
        from autopipe.building.part_workers import PartWorkers
        from autopipe.compiler import module_io
        from autopipe.compiler.dynamic_sizes import fix_sizes, kernel_sizes
        from autopipe.compiler.step_counter import count_steps
        from autopipe.schedules.conditions import Conditions

        module = module_io.load_module(ctx.inputs["optimize"] / "module.json")
        conditions = Conditions.of(ctx.facts[Facet.TARGET], fast_algorithms=self.fast_algorithms)
        sized_modules = SizedModules.of(list_likely_sizes(self.dimensions))
        modules = sized_modules.modules

        def lower_at_likely_sizes(number: int) -> list[str]:
            counts = kernel_sizes.count_multiples(self.dimensions, modules[number].sizes)
            bound = fix_sizes.bind_sizes(module, counts)
            _, warnings = self._write_lowered(bound, conditions, ctx.out / modules[number].file)
            return warnings

        parts = [[sized_module.file] for sized_module in modules]
        cores = len(os.sched_getaffinity(0))
        with (
            show_passes(ctx, self.name),
            PartWorkers(parts, lower_at_likely_sizes, self.seconds) as workers,
        ):
            workers.begin(cores - 1)
            count, warnings = self._write_lowered(module, conditions, ctx.out / WHOLE)
            report = count_steps("likely sizes lowered", len(modules))
            while workers.await_part(cores) is not None:
                report(len(workers.results))
        for number, _ in enumerate(modules):
            warnings += workers.results[number]
        for message in dict.fromkeys(warnings):
            ctx.emit(Warn(stage=self.name, message=message))
        if modules:
            sized_modules.write(ctx.out)
        summary = f"{count} fused functions"
        return f"{summary}, and at {len(modules)} likely sizes" if modules else summary

    def _write_lowered(
        self, module: "tvm.IRModule", conditions: "Conditions", path: Path
    ) -> tuple[int, list[str]]:
        """Lower a module and write it; return its number of PrimFuncs, and warnings."""
        from autopipe.compiler import module_io
        from autopipe.schedules.schedulable import open_refusal_check

        warnings: list[str] = []
        with open_refusal_check(conditions) as refusal:
            scope = self._choose_fusion_scope(conditions.target, refusal, warnings.append)
            lowered = self._note_likely_sizes(self._lower_module(module, conditions, scope))
        module_io.save_module(lowered, path)
        return len(module_io.list_prim_funcs(lowered)), warnings

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
        self, target: "tvm.target.Target", refusal: "Refusal", warn: "Callable[[str], None]"
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
        return Scope(rules, refusal, warn, try_all=not runs_loops)
