"""Stage `import`: the model file as a Relax module and its weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from autopipe.config.dimension import Dimension
from autopipe.config.model import Input, Weights
from autopipe.config.names import FormatName
from autopipe.config.paths import find_model_path
from autopipe.config.pipeline import Pipeline
from autopipe.environment.facet import Facet
from autopipe.formats import FORMATS
from autopipe.pipeline.counted import Watch
from autopipe.pipeline.events import Warn
from autopipe.pipeline.stage import Context, Stage
from autopipe.stages.shown_passes import show_passes
from autopipe.store.artifact import Kind


class ImportStage(Stage, frozen=True):
    """Read a model file through the gate."""

    name: ClassVar[str] = "import"
    version: ClassVar[int] = 20
    produces: ClassVar[Kind] = Kind.MODEL
    seconds: ClassVar[float | None] = 10 * 60.0
    runs_passes: ClassVar[bool] = True
    imported_meanwhile: ClassVar[tuple[str, ...]] = (
        "autopipe.building.compiling",
        "autopipe.building.map_nodes",
        "autopipe.building.weight_pool",
        "autopipe.compiler.dynamic_sizes.fix_sizes",
        "autopipe.compiler.lowering",
        "autopipe.records.proofs",
        "autopipe.safety.inspection",
        "autopipe.schedules.model_weights",
        "autopipe.schedules.schedulable",
        "autopipe.tasks.filters",
        "numpy.random",
        "safetensors.numpy",
    )
    reads: ClassVar[frozenset[Facet]] = frozenset({Facet.TVM, Facet.FRONTEND})

    format: FormatName
    """File format of the model."""
    path: Path
    """Absolute path of the model file, which enters the key by content."""
    sha256: str | None
    """Digest the file must have."""
    inputs: dict[str, Input]
    """Shapes of inputs by name."""
    dimensions: dict[str, Dimension] = {}
    """Dynamic dimensions by name."""
    weights: Weights | None
    """How weights are synthesized; null keeps the model's."""

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self:
        """Create the stage from the section `model`, with an absolute path."""
        model = pipeline.model
        return cls(
            format=model.format,
            path=find_model_path(model, base),
            sha256=model.sha256,
            inputs=dict(model.inputs),
            dimensions=dict(model.dimensions),
            weights=model.weights,
        )

    def run(self, ctx: Context) -> str:
        """Write the module, the weights, and the model as reference runtimes run it."""
        from autopipe.compiler.frontends.loaders import LOADERS
        from autopipe.compiler.frontends.write_imported import write_imported
        from autopipe.compiler.step_counter import count_with
        from autopipe.host.memory import keep_freed_memory

        keep_freed_memory()
        watch = Watch(self.name, ctx.emit)
        watch.begin(f"converting {self.path.name}")
        with show_passes(ctx, self.name):
            model = LOADERS[self.format](
                self.path, self.inputs, self.weights, self.sha256, self.dimensions
            )
        for message in model.warnings:
            ctx.emit(Warn(stage=self.name, message=message))
        watch.begin(f"writing {len(model.weights)} arrays of weights")
        with count_with(watch.count):
            params = write_imported(model, self.dimensions, ctx.out)
        origin = "drawn" if model.synthesized else "read"
        source = self.format if model.opset is None else f"opset {model.opset}"
        return f"{model.name}: {source}, {params} weights {origin}"

    def sources(self) -> Mapping[str, Path]:
        """Return the model file and its external data."""
        return FORMATS[self.format].list_files(self.path)

    def unkeyed(self) -> frozenset[str]:
        """Exclude the path, as the content is the key, and dimensions if all shapes are static."""
        return frozenset({"path"} if self.dimensions else {"path", "dimensions"})
