"""`benchmark.json`: the report of the stage *benchmark*."""

from collections.abc import Mapping
from enum import StrEnum
from statistics import geometric_mean
from typing import Annotated, Any, ClassVar

from pydantic import Field

from autopipe.artifacts.document import ArtifactDocument
from autopipe.config.dimension import format_sizes
from autopipe.config.frozen import Frozen

_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Latency(Frozen, frozen=True):
    """The times of one competitor, in seconds."""

    median: float
    """Median over all runs of all rounds."""
    low: float
    """Lower quartile of the runs."""
    high: float
    """Upper quartile of the runs."""
    rounds: tuple[float, ...]
    """Median of each round, in order."""


class LatencyVerdict(StrEnum):
    """Which of two competitors is faster."""

    FASTER = "faster"
    SLOWER = "slower"
    INCONCLUSIVE = "inconclusive"
    """The spreads overlap, or the measurement was disturbed."""


class LatencyComparison(Frozen, frozen=True):
    """The comparison of a build with one reference runtime."""

    ratio: float
    """Our median divided by theirs; below 1 the build is faster."""
    rounds: tuple[float, ...]
    """The ratio of each round, in which both ran one after the other."""
    verdict: LatencyVerdict
    """The conclusion from the spreads."""


class BenchmarkMachine(Frozen, frozen=True):
    """The machine of a benchmark and its load."""

    cpu: str
    """Name of the processor."""
    cores: int
    """Cores this process may use."""
    gpu: str | None = None
    """Name of the GPU, if the build runs on one."""
    load_before: float
    """Runnable processes, averaged over the minute before the first round."""
    load_after: float
    """The same after the last round, the competitors included."""


class RoundConditions(Frozen, frozen=True):
    """The load of a machine during the counted runs of a round."""

    seconds: _Seconds
    """Wall time."""
    cpu: _Seconds
    """CPU time of the competitor, with all its threads and children."""
    others: _Seconds | None
    """CPU time of other programs on the processors it may use; null if unknown."""
    stolen: _Seconds | None
    """Time stolen by the host of a virtual machine; null if unknown."""
    cores: Annotated[int, Field(ge=1)]
    """Processors it may use."""
    load_before: float
    """Runnable processes, averaged over the minute before."""
    load_after: float
    """The same, afterwards."""
    quota: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """CPU quota of its control groups in processors; null for no limit."""


class TimedContender(Frozen, frozen=True):
    """The result of one competitor."""

    name: str
    """`autopipe` is the build."""
    version: str
    """Version of its runtime."""
    latency: Latency
    """Its times."""


class Round(Frozen, frozen=True):
    """A completed round."""

    conditions: dict[str, RoundConditions]
    """The load of the machine meanwhile, by competitor."""
    disturbed: str = ""
    """The cause of a disturbance; a disturbed round is dropped if most were not disturbed."""


class SizedTimes(Frozen, frozen=True):
    """The times of the competitors at certain sizes of a model with dynamic shapes."""

    sizes: dict[str, int]
    """The size of each dimension."""
    likely: bool
    """Whether there is a library specialized to these sizes."""
    ours: Latency
    """The times of the build."""
    competitors: dict[str, Latency]
    """Those of each reference runtime that could be timed."""
    comparisons: dict[str, LatencyComparison]
    """The comparison with each reference runtime, by its name."""
    disturbed: str = ""
    """Why these times are inconclusive."""
    best: str = ""
    """The fastest reference runtime at these sizes, if several were timed."""


class BenchmarkResult(Frozen, frozen=True):
    """The times of all competitors; with dynamic shapes, at the first timed sizes."""

    machine: BenchmarkMachine
    """The machine of the measurement."""
    threads: int
    """Threads of the build and of the reference runtimes."""
    warmup: int
    """Minimum number of uncounted runs of each competitor in each round."""
    repeat: int
    """Minimum number of counted runs of each competitor in each round."""
    ours: TimedContender
    """The build."""
    competitors: tuple[TimedContender, ...]
    """The reference runtimes that could be timed."""
    comparisons: dict[str, LatencyComparison]
    """The comparison with each reference runtime, by its name."""
    skipped: dict[str, str]
    """Reference runtimes that could not be timed, and why."""
    rounds: tuple[Round, ...] = ()
    """All rounds in order; the times are those of undisturbed ones, if these are a majority."""
    disturbed: str = ""
    """The disturbance of at least half of the rounds."""
    at_sizes: tuple[SizedTimes, ...] = ()
    """With dynamic shapes, the times at each timed size; the first are those above."""
    best: str = ""
    """The fastest reference runtime, if several were timed, which gates use."""

    @property
    def counted_competitor(self) -> str | None:
        """Return the name of the reference runtime that gates use; None if none was timed."""
        return self.best or next(iter(self.comparisons), None)

    def summary(self) -> str:
        """Format a summary of one line."""
        sizes = f"{format_sizes(self.at_sizes[0].sizes)}: " if self.at_sizes else ""
        return f"{sizes}{self._summarize_comparison()}{self._summarize_over_sizes()}"

    def _summarize_over_sizes(self) -> str:
        """Format the geometric means over all sizes."""
        if len(self.at_sizes) <= 1:
            return ""
        parts = []
        for competitor in self.competitors:
            ratios = [
                at.comparisons[competitor.name].ratio
                for at in self.at_sizes
                if competitor.name in at.comparisons
            ]
            parts.append(f"{competitor.name} {geometric_mean(ratios):.2f} over {len(ratios)} sizes")
        if self.best:
            counts = [at.comparisons[at.best].ratio for at in self.at_sizes if at.best]
            parts.append(f"the best at each {geometric_mean(counts):.2f}")
        return f"; mean ratio to {', '.join(parts)}" if parts else ""

    def _summarize_comparison(self) -> str:
        parts = [_format_milliseconds(self.ours.latency)]
        for competitor in self.competitors:
            comparison = self.comparisons[competitor.name]
            parts.append(
                f"{competitor.name} {_format_milliseconds(competitor.latency)}: "
                f"ratio {comparison.ratio:.2f}, {comparison.verdict}"
            )
        if self.best:
            comparison = self.comparisons[self.best]
            parts.append(
                f"best competitor {self.best}: ratio {comparison.ratio:.2f}, {comparison.verdict}"
            )
        if not self.disturbed:
            return "; ".join(parts)
        return (
            "; ".join(parts) + (": " if self.competitors else ", inconclusive: ") + self.disturbed
        )


class Outcome(StrEnum):
    """The outcome of a gate."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    """The times are inconclusive; the build passes with a warning."""


class CheckedGate(Frozen, frozen=True):
    """A gate, and its finding."""

    gate: str
    """Its field in the pipeline file, such as `gates.max_slowdown.onnxruntime`."""
    outcome: Outcome
    found: str
    """The finding and the limit."""


class BenchmarkReport(BenchmarkResult, ArtifactDocument, frozen=True, extra="forbid"):
    """The times of all competitors, the machine, and the outcome of the gates."""

    FILE: ClassVar[str] = "benchmark.json"

    device: dict[str, Any]
    """The facts of the device that determine the speed of code."""
    gates: tuple[CheckedGate, ...]
    """The outcome of each gate."""


def find_best_competitor(latencies: Mapping[str, Latency]) -> str:
    """Return the name of the fastest reference runtime; empty if there are less than two."""
    if len(latencies) <= 1:
        return ""
    return min(latencies, key=lambda name: latencies[name].median)


def _format_milliseconds(latency: Latency) -> str:
    return f"{latency.median * 1e3:.3g} ms ({latency.low * 1e3:.3g} to {latency.high * 1e3:.3g})"
