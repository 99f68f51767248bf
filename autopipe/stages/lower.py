"""Stage `lower`: ops become fused PrimFuncs, the one module that tuning and build share."""

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from autopipe.config import Fusion, Pipeline
from autopipe.environment.facet import Facet
from autopipe.pipeline.events import Warn
from autopipe.pipeline.stage import Context, Need, Stage
from autopipe.store.artifact import Kind

if TYPE_CHECKING:
    import tvm

    from autopipe.compiler.fusion.scope import Refusal, Scope


class LowerStage(Stage, frozen=True):
    """Legalize and fuse."""

    name: ClassVar[str] = "lower"
    version: ClassVar[int] = 2
    produces: ClassVar[Kind] = Kind.LOWERED
    needs: ClassVar[dict[str, Need]] = {"optimize": Need(Kind.MODULE)}
    reads: ClassVar[frozenset[Facet]] = frozenset({Facet.TVM, Facet.TARGET})

    fast_algorithms: bool
    """Whether elementary functions may round differently from libm's."""
    fusion: Fusion
    """Which ops are one task together, and which are kept apart."""

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self:  # noqa: ARG003 - reads no file
        """Take what the pipeline allows of numerics, and its rules of fusion."""
        return cls(fast_algorithms=pipeline.numerics.fast_algorithms, fusion=pipeline.fusion)

    def run(self, ctx: Context) -> str:
        """Write the lowered module; its PrimFuncs say which ops they came from.

        Raises ConfigError if a rule names an op that Relax does not have.
        """
        from autopipe.compiler import module_io, passes
        from autopipe.schedules.conditions import Conditions
        from autopipe.schedules.schedulable import refusals

        module = module_io.load_module(ctx.inputs["optimize"] / "module.json")
        conditions = Conditions.of(ctx.facts[Facet.TARGET], fast_algorithms=self.fast_algorithms)
        with refusals(conditions) as refusal:
            lowered = passes.lower(
                module,
                conditions.target,
                fast_algorithms=self.fast_algorithms,
                scope=self._scope(ctx, conditions.target, refusal),
            )
        module_io.save_module(lowered, ctx.out / "module.json")
        return f"{len(module_io.prim_funcs(lowered))} fused functions"

    def _scope(
        self, ctx: Context, target: "tvm.target.Target", refusal: "Refusal"
    ) -> "Scope | None":
        """Return how fusion is changed: by the rules, and on a GPU, where nothing runs as it is."""
        from autopipe.compiler.fusion.fusion_rules import FusionRules
        from autopipe.compiler.fusion.scope import Scope, check
        from autopipe.compiler.target.target import is_gpu

        rules = FusionRules(self.fusion.join, self.fusion.apart)
        check(rules)
        if not rules and not is_gpu(target):
            return None
        return Scope(
            rules,
            refusal,
            lambda message: ctx.emit(Warn(stage=self.name, message=message)),
            try_all=is_gpu(target),
        )
