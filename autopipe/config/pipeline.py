"""The whole pipeline file."""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from autopipe.backends import BACKENDS
from autopipe.config.benchmark import Benchmark
from autopipe.config.cache import Cache
from autopipe.config.dimension import MOST_LIKELY, list_dimension_names, list_likely_sizes
from autopipe.config.frozen import Consistent, Contradiction
from autopipe.config.fusion import Fusion
from autopipe.config.gates import Gates, Regression
from autopipe.config.layout import Layout
from autopipe.config.match import Match
from autopipe.config.model import Model
from autopipe.config.numerics import Numerics
from autopipe.config.package import Package
from autopipe.config.schedules import Schedules
from autopipe.config.target import Target
from autopipe.config.tasks import Tasks
from autopipe.config.tuning import Measure, Tuning
from autopipe.config.verify import Verify
from autopipe.formats import FORMATS

NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
"""Pattern of the name of a pipeline."""

_ROUNDS: Final = 3
"""Least number of rounds for an estimate of their spread."""


def _check_version(value: object) -> object:
    if type(value) is not int or value != 1:  # true and 1.0 are equal to 1
        raise ValueError(f"{value!r} is not a version this autopipe reads; write 1")
    return value


class Pipeline(Consistent, frozen=True):
    """The configuration of one build: a whole pipeline file without `builds`."""

    version: Annotated[Literal[1], BeforeValidator(_check_version)]
    """Version of this grammar."""
    name: Annotated[str, StringConstraints(pattern=NAME)]
    """Name of the pipeline; the package is `<name>.tar`."""
    model: Model
    """The source of the model."""
    target: Target = Target()
    """The target hardware."""
    layout: Layout | None = None
    """Desired layouts by Relax op: `conv2d: [NHWC, HWIO]` is data, then kernel. Pooling and other
    ops adopt the layout of their inputs; null keeps the model's layouts."""
    fusion: Fusion = Fusion()
    """Which ops are one task together, and which are kept apart; the rest is TVM's choice."""
    tasks: Tasks = Field(default_factory=Tasks)
    """Which of the extracted tasks are tuned."""
    tuning: Tuning | None = Field(default_factory=Tuning)
    """The search for schedules; null skips it."""
    schedules: Schedules = Field(default_factory=Schedules)
    """Which engine may schedule which task."""
    numerics: Numerics = Numerics()
    """Options that change the rounding of results."""
    verify: Verify | None = Field(default_factory=Verify)
    """Comparison with a reference; null skips it."""
    benchmark: Benchmark | None = Field(default_factory=Benchmark)
    """Latency against reference runtimes; null skips it."""
    gates: Gates = Gates()
    """Conditions for the publication of a build."""
    package: Package | None = Field(default_factory=Package)
    """The deployable file; null skips it."""
    cache: Cache = Cache()
    """Results of other machines."""

    def _contradictions(self) -> Iterator[Contradiction]:
        """Yield each field that another section makes impossible."""
        for name, (_, share) in self.gates.shares().items() if self.tuning is None else ():
            yield ("gates", name), share, "cannot be reached: `tuning` is null"
        against = self.benchmark.against if self.benchmark else ()
        for competitor, slowdown in self.gates.max_slowdown.items():
            if not against or competitor not in (*against, "best"):
                runtime = "a reference runtime" if competitor == "best" else competitor
                why = f"cannot be checked: `benchmark.against` does not name {runtime}"
                yield ("gates", "max_slowdown", competitor), slowdown, why
            elif not FORMATS[self.model.format].runs_in_onnx_runtimes:
                runtime = "a reference runtime" if competitor == "best" else competitor
                why = f"cannot be checked: {runtime} runs ONNX models, and this is none"
                yield ("gates", "max_slowdown", competitor), slowdown, why
        if self.gates.regression is not None:
            yield from self._list_gate_conflicts(self.gates.regression)
        yield from self._list_task_conflicts()
        yield from self._list_size_conflicts()
        yield from self._list_runner_conflicts()
        yield from self._list_bfloat16_conflicts()
        reference = self.verify.reference if self.verify else "auto"
        runs_in_onnx_runtimes = FORMATS[self.model.format].runs_in_onnx_runtimes
        if reference in {"onnxruntime", "onnx"} and not runs_in_onnx_runtimes:
            why = "runs ONNX models, and this is none; write 'plain'"
            yield ("verify", "reference"), reference, why

    def _list_task_conflicts(self) -> Iterator[Contradiction]:
        """Yield the patterns that leave no task to tune."""
        if self.tuning is None or self.tasks.allow_empty:
            return
        for position, pattern in enumerate(self.tasks.exclude):
            if pattern == Match():
                why = "excludes every task; name an op, or accept it with `allow_empty: true`"
                yield ("tasks", "exclude", position), str(pattern), why

    def _list_bfloat16_conflicts(self) -> Iterator[Contradiction]:
        """Yield bfloat16 options that the target or the model does not support."""
        for name in ("weights", "compute"):
            value = getattr(self.numerics, name)
            if value and not BACKENDS[self.target.kind].supports_bfloat16_rounding:
                yield ("numerics", name), value, "is for processors only"
        if self.numerics.compute and self.model.dimensions:
            why = "is for models whose sizes are known: `model.dimensions` leaves some open"
            yield ("numerics", "compute"), self.numerics.compute, why

    def _list_runner_conflicts(self) -> Iterator[Contradiction]:
        """Yield the fields that measuring on other machines requires or excludes."""
        measure = self.tuning.measure if self.tuning else Measure()
        runner = measure.runner
        if runner == "local":
            return
        address_field = "scheduler" if runner == "farm" else "tracker"
        if getattr(measure, address_field) is None:
            yield ("tuning", "measure", address_field), None, f"is needed: `runner` is {runner}"
        at, why = ("tuning", "measure", "runner"), "measures elsewhere"
        if not BACKENDS[self.target.kind].supports_remote_runners:
            yield at, runner, f"{why}, processors only; `target.kind` is {self.target.kind}"
        elif self.target.mcpu == "native":
            yield (
                ("target", "mcpu"),
                "native",
                f"is this machine, and `{runner}` {why}: name theirs",
            )
        if self.target.num_cores is None:
            yield ("target", "num_cores"), None, f"is required: `{runner}` {why}"

    def _list_size_conflicts(self) -> Iterator[Contradiction]:
        """Yield the errors in symbolic sizes of shapes, and in `model.dimensions`."""
        dimensions, used_names, defined_names = self.model.dimensions, set[str](), set[str]()
        for at, extent, value in self._list_named_sizes():
            names = list_dimension_names(extent)
            used_names.update(names)
            defined_names.update({extent} & set(names))
            if unknown_names := [name for name in names if name not in dimensions]:
                yield at, unknown_names[0], "is not described in model.dimensions"
            elif value is not None:
                yield at, extent, "cannot be open where the input has a value"
        for name in sorted(dimensions.keys() - defined_names):
            sums = "only in sums, which do not tell it" if name in used_names else "in no shape"
            yield ("model", "dimensions", name), name, f"stands {sums} of model.inputs"
        if dimensions and not FORMATS[self.model.format].supports_dynamic_shapes:
            why = f"are not supported by the format {self.model.format}"
            yield ("model", "dimensions"), sorted(dimensions), why
        if dimensions and not BACKENDS[self.target.kind].supports_dynamic_shapes:
            yield ("model", "dimensions"), sorted(dimensions), "are for processors only"
        if len(list_likely_sizes(dimensions)) > MOST_LIKELY:
            why = f"have more than {MOST_LIKELY} combinations of likely sizes"
            yield ("model", "dimensions"), sorted(dimensions), why

    def _list_named_sizes(self) -> Iterator[tuple[tuple[str | int, ...], str, object]]:
        """Yield the place of each symbolic size, the size, and the constant value of its input."""
        for name, model_input in self.model.inputs.items():
            for axis, size in enumerate(model_input.shape):
                if isinstance(size, str):
                    yield ("model", "inputs", name, "shape", axis), size, model_input.value

    def _list_gate_conflicts(self, gate: Regression) -> Iterator[Contradiction]:
        """Yield the reasons why a regression cannot be distinguished from noise."""
        at, value = ("gates", "regression"), gate.baseline
        if self.benchmark is None:
            yield at, value, "cannot be checked: `benchmark` is null"
        elif (rounds := self.benchmark.rounds) < _ROUNDS:
            yield at, value, f"needs {_ROUNDS} rounds: `benchmark.rounds` is {rounds}"
