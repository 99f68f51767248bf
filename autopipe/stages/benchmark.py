"""Stage *benchmark*: time the build against reference runtimes."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, ClassVar, Self

from autopipe.backends import DEVICES
from autopipe.benchmarking.baseline import Baseline, read_baseline
from autopipe.config.benchmark import Benchmark
from autopipe.config.gates import Gates
from autopipe.config.pipeline import Pipeline
from autopipe.environment.facet import Facet
from autopipe.errors import StageError
from autopipe.pipeline.counted import Watch
from autopipe.pipeline.events import Measured, Warn
from autopipe.pipeline.stage import Context, Need, Stage
from autopipe.stages.samples import check_sample_file
from autopipe.store import arrays
from autopipe.store.artifact import Kind

if TYPE_CHECKING:
    from autopipe.artifacts.benchmark import BenchmarkResult
    from autopipe.artifacts.signature import Signature
    from autopipe.config.dimension import Sizes


class BenchmarkStage(Stage, frozen=True):
    """Times the build and the reference runtimes, again for each build."""

    name: ClassVar[str] = "benchmark"
    version: ClassVar[int] = 5
    produces: ClassVar[Kind] = Kind.REPORT
    seconds: ClassVar[float | None] = None
    needs: ClassVar[Mapping[str, Need]] = {
        "import": Need(Kind.MODEL),
        "build": Need(Kind.LIBRARY),
        "verify": Need(Kind.REPORT, optional=True),
    }
    reads: ClassVar[frozenset[Facet]] = frozenset(
        {Facet.TVM, Facet.TARGET, Facet.DEVICE, Facet.REFERENCE}
    )
    cached: ClassVar[bool] = False

    options: Benchmark
    """Section `benchmark` of the pipeline file."""
    gates: Gates
    """Section `gates` of the pipeline file."""
    baseline: Baseline | None = None
    """The times of an earlier build, for comparison."""
    sample: Path | None = None
    """The file of inputs to time with; it enters the key by content."""

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self | None:
        """Create the stage, or return None for `benchmark: null`.

        Raises ConfigError for a baseline or inputs that cannot be read: now, not after tuning.
        """
        if pipeline.benchmark is None:
            return None
        gate = pipeline.gates.regression
        baseline = None if gate is None else read_baseline(base / gate.baseline, pipeline.name)
        name = pipeline.benchmark.inputs
        sample = name and check_sample_file(base / name, "benchmark.inputs", pipeline)
        return cls(
            options=pipeline.benchmark,
            gates=pipeline.gates,
            baseline=baseline,
            sample=sample or None,
        )

    def run(self, ctx: Context) -> str:
        """Write `benchmark.json`; raise GateError where the build is too slow."""
        from autopipe.benchmarking.gate import build_report, require_gates
        from autopipe.compiler.target import machine

        machine.check(ctx.facts[Facet.TARGET], self.name)
        with TemporaryDirectory(dir=ctx.work) as scratch:
            match = self._time_all_sizes(ctx, Path(scratch) / "inputs.safetensors")
        device = ctx.facts[Facet.DEVICE]
        report = build_report(match, self.gates, self.baseline, device)
        report.write(ctx.out)
        ctx.emit(Measured(stage=self.name, document=report.model_dump(mode="json")))
        for name, reason in match.skipped.items():
            ctx.emit(Warn(stage=self.name, message=f"{name} is not compared with: {reason}"))
        if match.disturbed:
            advice = "--force benchmark measures again"
            ctx.emit(Warn(stage=self.name, message=f"{match.disturbed}; {advice}"))
        for message in require_gates(report.gates):
            ctx.emit(Warn(stage=self.name, message=message))
        return match.summary()

    def _time_all_sizes(self, ctx: Context, inputs: Path) -> "BenchmarkResult":
        """Time the build and its competitors at each timed size; gates apply to the first."""
        from autopipe.artifacts.library import BuiltLibrary
        from autopipe.benchmarking.at_sizes import choose_timed_sizes, summarize_sizes
        from autopipe.compiler.library import samples
        from autopipe.compiler.step_counter import count_with, join_counts
        from autopipe.config.dimension import format_sizes, list_likely_sizes
        from autopipe.measure.turn import Turn

        signature = BuiltLibrary.read(ctx.inputs["build"]).signature
        timed_sizes = choose_timed_sizes(signature.dimensions) or ({},)
        if self.sample is not None:
            timed_sizes = (samples.read_sizes(self.sample, signature.inputs, signature.dimensions),)
        likely_sizes = list_likely_sizes(signature.dimensions)
        watch = Watch(self.name, ctx.emit)
        turn = Turn(lambda text: ctx.emit(Warn(stage=self.name, message=text)))
        with turn.taken(), count_with(watch.count), join_counts(len(timed_sizes)):
            watch.begin(f"timing {', '.join(['autopipe', *self.options.against])}")
            result = self._time_at_sizes(ctx, signature, timed_sizes[0], inputs)
            if not signature.dimensions:
                return result
            times = [summarize_sizes(timed_sizes[0], result, likely_sizes)]
            for sizes in timed_sizes[1:]:
                try:
                    times.append(
                        summarize_sizes(
                            sizes, self._time_at_sizes(ctx, signature, sizes, inputs), likely_sizes
                        )
                    )
                except StageError as error:  # such as a time limit
                    message = f"not timed with {format_sizes(sizes)}: {error}"
                    ctx.emit(Warn(stage=self.name, message=message))
        return result.model_copy(update={"at_sizes": tuple(times)})

    def _time_at_sizes(
        self, ctx: Context, signature: "Signature", sizes: "Sizes", inputs: Path
    ) -> "BenchmarkResult":
        """Time the build and its competitors at given dynamic sizes."""
        from autopipe.artifacts.model import ImportedModel
        from autopipe.benchmarking.match import OURS, BenchmarkSetup, time_contenders
        from autopipe.compiler.library import samples
        from autopipe.verification.inputs import draw_inputs
        from autopipe.verification.limits import find_input_limits

        model = ctx.inputs["import"]
        ports = signature.at(sizes)
        if self.sample is None:
            input_arrays = draw_inputs(ports, find_input_limits(model, ports), (0, 0))
        else:
            input_arrays = samples.load(self.sample, ports, ImportedModel.read(model).selects)
        arrays.save(input_arrays, inputs)
        gpu = DEVICES[signature.device].describe_device().get("gpu")
        table = BenchmarkSetup(
            contenders={
                OURS: ctx.inputs["build"],
                **dict.fromkeys(self.options.against, model / "reference.onnx"),
            },
            inputs=inputs,
            options=self.options,
            gpu=None if gpu is None else str(gpu),
        )
        return time_contenders(table, signature.threads)

    def sources(self) -> Mapping[str, Path]:
        """Return the file of inputs, if there is one."""
        return {"inputs": self.sample} if self.sample else {}

    def unkeyed(self) -> frozenset[str]:
        """Exclude the path: the content of the file is the key."""
        return frozenset({"sample"})
