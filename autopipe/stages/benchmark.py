"""Stage *benchmark*: how fast is the build, and how fast what a user would run otherwise?"""

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
    """Times the build and its rivals, anew for each build."""

    name: ClassVar[str] = "benchmark"
    version: ClassVar[int] = 4
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
    """The times of an earlier build that this one is compared with."""
    sample: Path | None = None
    """The file of inputs that is timed on; it enters the key by content."""

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self | None:
        """Return the stage, or None for `benchmark: null`.

        Raises ConfigError for a baseline or inputs that can not be read: now, not after tuning.
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
        measured = build_report(match, self.gates, self.baseline, device)
        measured.write(ctx.out)
        ctx.emit(Measured(stage=self.name, document=measured.model_dump(mode="json")))
        for name, reason in match.skipped.items():
            ctx.emit(Warn(stage=self.name, message=f"{name} is not compared with: {reason}"))
        if match.disturbed:
            advice = "--force benchmark measures again"
            ctx.emit(Warn(stage=self.name, message=f"{match.disturbed}; {advice}"))
        for message in require_gates(measured.gates):
            ctx.emit(Warn(stage=self.name, message=message))
        return match.summary()

    def _time_all_sizes(self, ctx: Context, inputs: Path) -> "BenchmarkResult":
        """Time the contenders, with open sizes at each that is timed; the first ones decide."""
        from autopipe.artifacts.library import BuiltLibrary
        from autopipe.benchmarking.at_sizes import choose_timed_sizes, summarize_sizes
        from autopipe.compiler.library import samples
        from autopipe.compiler.step_counter import count_with, join_counts
        from autopipe.config.dimension import format_sizes, list_likely_sizes
        from autopipe.measure.turn import Turn

        signature = BuiltLibrary.read(ctx.inputs["build"]).signature
        wanted = choose_timed_sizes(signature.dimensions) or ({},)
        if self.sample is not None:
            wanted = (samples.read_sizes(self.sample, signature.inputs, signature.dimensions),)
        known = list_likely_sizes(signature.dimensions)
        watch = Watch(self.name, ctx.emit)
        turn = Turn(lambda text: ctx.emit(Warn(stage=self.name, message=text)))
        with turn.taken(), count_with(watch.count), join_counts(len(wanted)):
            watch.begin(f"timing {', '.join(['autopipe', *self.options.against])}")
            found = self._time_at_sizes(ctx, signature, wanted[0], inputs)
            if not signature.dimensions:
                return found
            times = [summarize_sizes(wanted[0], found, known)]
            for sizes in wanted[1:]:
                try:
                    times.append(
                        summarize_sizes(
                            sizes, self._time_at_sizes(ctx, signature, sizes, inputs), known
                        )
                    )
                except StageError as error:  # too slow for its time, it may be
                    message = f"not timed with {format_sizes(sizes)}: {error}"
                    ctx.emit(Warn(stage=self.name, message=message))
        return found.model_copy(update={"at_sizes": tuple(times)})

    def _time_at_sizes(
        self, ctx: Context, signature: "Signature", sizes: "Sizes", inputs: Path
    ) -> "BenchmarkResult":
        """Time the contenders at certain sizes."""
        from autopipe.artifacts.model import ImportedModel
        from autopipe.benchmarking.match import OURS, BenchmarkSetup, time_contenders
        from autopipe.compiler.library import samples
        from autopipe.verification.inputs import draw_inputs
        from autopipe.verification.limits import find_input_limits

        model = ctx.inputs["import"]
        ports = signature.at(sizes)
        if self.sample is None:
            timed = draw_inputs(ports, find_input_limits(model, ports), (0, 0))
        else:
            timed = samples.load(self.sample, ports, ImportedModel.read(model).selects)
        arrays.save(timed, inputs)
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
        """Return the path: what counts is what is in the file."""
        return frozenset({"sample"})
