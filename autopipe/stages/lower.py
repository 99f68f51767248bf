"""Stage `lower`: ops become fused PrimFuncs, the one module that tuning and build share."""

from pathlib import Path
from typing import ClassVar, Self

from autopipe.config import Pipeline
from autopipe.pipeline.stage import Context, Facet, Kind, Need, Stage


class Lower(Stage, frozen=True):
    """Legalize and fuse."""

    name: ClassVar[str] = "lower"
    version: ClassVar[int] = 2
    produces: ClassVar[Kind] = Kind.LOWERED
    needs: ClassVar[dict[str, Need]] = {"optimize": Need(Kind.MODULE)}
    reads: ClassVar[frozenset[Facet]] = frozenset({Facet.TVM, Facet.TARGET})

    fast_algorithms: bool
    """Whether elementary functions may round differently from libm's."""

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self:  # noqa: ARG003 - reads no file
        """Take what the pipeline allows of numerics."""
        return cls(fast_algorithms=pipeline.numerics.fast_algorithms)

    def run(self, ctx: Context) -> str:
        """Write the lowered module; its PrimFuncs say which ops they came from."""
        from autopipe.compiler import module_io, passes
        from autopipe.compiler.target import tvm_target

        module = module_io.load_module(ctx.inputs["optimize"] / "module.json")
        target = tvm_target(ctx.facts[Facet.TARGET])
        lowered = passes.lower(module, target, fast_algorithms=self.fast_algorithms)
        module_io.save_module(lowered, ctx.out / "module.json")
        return f"{len(module_io.prim_funcs(lowered))} fused functions"
