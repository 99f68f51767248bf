"""Stage `lower`: ops become fused PrimFuncs, the one module that tuning and build share."""

from dataclasses import asdict
from pathlib import Path
from typing import ClassVar, Self

from autopipe.config import Pipeline
from autopipe.pipeline.stage import Context, Facet, Kind, Need, Stage


class Lower(Stage, frozen=True):
    """Legalize and fuse."""

    name: ClassVar[str] = "lower"
    version: ClassVar[int] = 1
    produces: ClassVar[Kind] = Kind.LOWERED
    needs: ClassVar[dict[str, Need]] = {"optimize": Need(Kind.MODULE)}
    reads: ClassVar[frozenset[Facet]] = frozenset({Facet.TVM, Facet.TARGET})

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self:  # noqa: ARG003 - has no parameters
        """Lowering has no parameters."""
        return cls()

    def run(self, ctx: Context) -> str:
        """Write the lowered module, and which ops each PrimFunc came from."""
        from autopipe.compiler import module_io, passes
        from autopipe.compiler.target import tvm_target

        module = module_io.load_module(ctx.inputs["optimize"] / "module.json")
        lowered = passes.lower(module, tvm_target(ctx.facts[Facet.TARGET]))
        functions = {name: asdict(info) for name, info in lowered.functions.items()}
        module_io.save_module(lowered.module, ctx.out / "module.json")
        module_io.save_json(functions, ctx.out / "functions.json")
        return f"{len(module_io.prim_funcs(lowered.module))} fused functions"
