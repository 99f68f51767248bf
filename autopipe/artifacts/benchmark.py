"""`benchmark.json`: what the stage *benchmark* measured."""

from collections.abc import Mapping
from enum import StrEnum
from statistics import geometric_mean
from typing import Annotated, Any, ClassVar

from pydantic import Field

from autopipe.artifacts.document import ArtifactDocument
from autopipe.config.dimension import format_sizes
from autopipe.config.frozen import Frozen, Sparse

_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Latency(Frozen, frozen=True):
    """The times of one contender, in seconds."""

    median: float
    """Median over all runs of all rounds."""
    low: float
    """Lower quartile of the runs."""
    high: float
    """Upper quartile of the runs."""
    rounds: tuple[float, ...]
    """Median of each round, in order."""


class LatencyVerdict(StrEnum):
    """Which contender is faster."""

    FASTER = "faster"
    SLOWER = "slower"
    INCONCLUSIVE = "inconclusive"
    """The spreads overlap, or something disturbed: these times do not tell."""


class LatencyComparison(Frozen, frozen=True):
    """A build against one rival."""

    ratio: float
    """Our median divided by theirs; below 1 the build is faster."""
    rounds: tuple[float, ...]
    """The ratio of each round, whose two contenders ran one after the other."""
    verdict: LatencyVerdict
    """What the spreads allow to say."""


class BenchmarkMachine(Frozen, frozen=True):
    """Where and under which load the contenders were timed."""

    cpu: str
    """Name of the processor."""
    cores: int
    """Cores this process may use."""
    gpu: str | None = None
    """Name of the GPU, if the build runs on one."""
    load_before: float
    """Runnable processes, averaged over the minute before the first round."""
    load_after: float
    """The same after the last round; the contenders themselves are in it."""


class RoundConditions(Frozen, frozen=True):
    """What a machine did while the counted runs of a round were timed."""

    seconds: _Seconds
    """How long that took."""
    cpu: _Seconds
    """CPU time of the contender, with all its threads and children."""
    others: _Seconds | None
    """CPU time of all other programs, on the processors it may use; null where nobody tells."""
    stolen: _Seconds | None
    """Time in which the host of a virtual machine kept these from it; null where nobody tells."""
    cores: Annotated[int, Field(ge=1)]
    """Processors it may use."""
    load_before: float
    """Runnable processes, averaged over the minute before."""
    load_after: float
    """The same, afterwards."""
    quota: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """As how many processors its control groups let it take time; null for no limit."""


class TimedContender(Frozen, frozen=True):
    """One contender's result."""

    name: str
    """`autopipe` is the build."""
    version: str
    """Version of its runtime."""
    latency: Latency
    """Its times."""


class Round(Frozen, frozen=True):
    """A round that was played."""

    conditions: dict[str, RoundConditions]
    """What the machine did meanwhile, by contender."""
    disturbed: str = ""
    """Who disturbed it; such a round does not count if most were not disturbed."""


class SizedTimes(Sparse, frozen=True):
    """What the contenders took at certain sizes of a model that leaves sizes open."""

    ADDED: ClassVar[frozenset[str]] = frozenset({"best"})

    sizes: dict[str, int]
    """The size of each dimension."""
    likely: bool
    """Whether there is a library for just these sizes."""
    ours: Latency
    """The times of the build."""
    rivals: dict[str, Latency]
    """Those of each rival that could be timed."""
    comparisons: dict[str, LatencyComparison]
    """The build against each rival, by the rival's name."""
    disturbed: str = ""
    """Why these times tell nothing."""
    best: str = ""
    """The rival that is fastest at these sizes, where several were timed."""


class BenchmarkResult(Sparse, frozen=True):
    """What all contenders took; with open sizes, at the first of those that are timed."""

    ADDED: ClassVar[frozenset[str]] = frozenset({"at_sizes", "best"})

    machine: BenchmarkMachine
    """Where it was measured."""
    threads: int
    """Threads of the build and of its rivals."""
    warmup: int
    """Runs of each contender in each round that were not counted, at least."""
    repeat: int
    """Counted runs of each contender in each round, at least."""
    ours: TimedContender
    """The build."""
    rivals: tuple[TimedContender, ...]
    """The rivals that could be timed."""
    comparisons: dict[str, LatencyComparison]
    """The build against each rival, by the rival's name."""
    skipped: dict[str, str]
    """Rivals that could not be timed, and why."""
    rounds: tuple[Round, ...] = ()
    """All that were played, in order; the times are of the quiet ones, where most were quiet."""
    disturbed: str = ""
    """What disturbed at least half of the rounds."""
    at_sizes: tuple[SizedTimes, ...] = ()
    """With open sizes, the times at each size that was timed; the first are those above."""
    best: str = ""
    """The fastest rival, where several were timed: the ratio to it is the one that counts."""

    @property
    def counted_rival(self) -> str | None:
        """Return the name of the rival whose ratio counts; null where none was timed."""
        return self.best or next(iter(self.comparisons), None)

    def summary(self) -> str:
        """Return one line for people."""
        sizes = f"{format_sizes(self.at_sizes[0].sizes)}: " if self.at_sizes else ""
        return f"{sizes}{self._summarize_comparison()}{self._summarize_over_sizes()}"

    def _summarize_over_sizes(self) -> str:
        """Say how the build does over all sizes."""
        if len(self.at_sizes) <= 1:
            return ""
        parts = []
        for rival in self.rivals:
            ratios = [
                at.comparisons[rival.name].ratio
                for at in self.at_sizes
                if rival.name in at.comparisons
            ]
            parts.append(f"{rival.name} {geometric_mean(ratios):.2f} over {len(ratios)} sizes")
        if self.best:
            counts = [at.comparisons[at.best].ratio for at in self.at_sizes if at.best]
            parts.append(f"the best at each {geometric_mean(counts):.2f}")
        return f"; mean ratio to {', '.join(parts)}" if parts else ""

    def _summarize_comparison(self) -> str:
        parts = [_format_milliseconds(self.ours.latency)]
        for rival in self.rivals:
            found = self.comparisons[rival.name]
            parts.append(
                f"{rival.name} {_format_milliseconds(rival.latency)}: "
                f"ratio {found.ratio:.2f}, {found.verdict}"
            )
        if self.best:
            found = self.comparisons[self.best]
            parts.append(f"best rival {self.best}: ratio {found.ratio:.2f}, {found.verdict}")
        if not self.disturbed:
            return "; ".join(parts)
        return "; ".join(parts) + (": " if self.rivals else ", inconclusive: ") + self.disturbed


class Outcome(StrEnum):
    """Whether a build may pass."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    """The times do not tell; the build passes, with a warning."""


class CheckedGate(Frozen, frozen=True):
    """A gate, and what was found."""

    gate: str
    """Its field in the pipeline file, such as `gates.max_slowdown.onnxruntime`."""
    outcome: Outcome
    found: str
    """What was found, and what is allowed."""


class BenchmarkReport(BenchmarkResult, ArtifactDocument, frozen=True, extra="forbid"):
    """What all contenders took, on which machine, and what that did to the gates."""

    FILE: ClassVar[str] = "benchmark.json"

    device: dict[str, Any]
    """The machine, as far as it decides how fast code runs."""
    gates: tuple[CheckedGate, ...]
    """What became of each gate."""


def find_best_rival(latencies: Mapping[str, Latency]) -> str:
    """Return the name of the fastest of several rivals; empty where there are no two."""
    if len(latencies) <= 1:
        return ""
    return min(latencies, key=lambda name: latencies[name].median)


def _format_milliseconds(latency: Latency) -> str:
    return f"{latency.median * 1e3:.3g} ms ({latency.low * 1e3:.3g} to {latency.high * 1e3:.3g})"
