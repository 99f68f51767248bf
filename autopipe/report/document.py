"""The report of a run: one JSON document that the other forms are made from."""

from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, ValidationError, model_validator

from autopipe import foreign
from autopipe.artifacts.benchmark import BenchmarkReport, CheckedGate
from autopipe.artifacts.headroom import TaskHeadroom
from autopipe.artifacts.numbers import Amount, Count
from autopipe.artifacts.signature import Port
from autopipe.artifacts.verification import Verification
from autopipe.benchmarking.baseline import Baseline
from autopipe.benchmarking.regression import to_baseline
from autopipe.config.frozen import Frozen
from autopipe.config.problem import format_first_error, format_value
from autopipe.errors import ConfigError
from autopipe.store.canonical import pretty

State = Literal["cached", "skipped", "finished", "failed", "interrupted", "not_run"]
Outcome = Literal["finished", "failed", "interrupted"]
Origin = Literal["run", "build", "lock", "package"]

_LARGEST: Final = 64 << 20


class StageReport(Frozen, frozen=True):
    """What became of a stage."""

    stage: str
    state: State
    """`cached` is taken from the store; `skipped` has measured this build before; what comes after
    a stage that failed is `not_run`."""
    seconds: float | None = None
    """How long it ran; null if it did not, or not to its end."""
    digest: str | None = None
    """Of its artifact."""
    summary: str | None = None
    """One line for people, or why it was skipped."""
    error: str | None = None


class Notice(Frozen, frozen=True):
    """A warning."""

    stage: str
    message: str


class TaskReport(Frozen, frozen=True):
    """A task, and how it was scheduled."""

    name: str
    workload: str
    calls: Count
    """How often a run of the model calls it."""
    engine: str
    implementation: str
    seconds: Amount | None
    """Of one call, measured by tuning; null for a fallback that was not."""
    reason: str
    """Why this schedule."""
    share: Amount | None = None
    """Of the time of all tasks: measured before the search, otherwise estimated."""
    in_model: Amount | None = None
    """Seconds of one call inside the whole model, measured by tuning; null where that did not
    run."""
    dropped: str | None = None
    """Why it was not tuned; null for a task that was kept."""
    trials: Count = 0
    """Trials of tuning."""
    failed: Count = 0
    """Of these, trials without a time."""
    flops: Amount = 0.0
    """Floating-point operations of one call; 0 where they are not known."""
    bytes: Count = 0
    """Bytes of all arguments of one call; 0 where they are not known."""
    result_bytes: Count = 0
    """Bytes of the results of one call; 0 where they are not known."""
    nodes: tuple[str, ...] = ()
    """Nodes of the model that its kernels compute; none where they are not known."""
    ops: tuple[str, ...] = ()
    """Names of its operators."""
    computes: tuple[str, ...] = ()
    """Its operators with tensors and attributes, a line each."""
    schedule: tuple[str, ...] = ()
    """Template and knobs, or steps of the trace, a line each; none where no record is kept."""
    problems: tuple[str, ...] = ()
    """Schedules that were rejected, candidates that crashed, and why no check was possible."""
    tir: str | None = None
    """Its scheduled TIR as TVMScript; null where nobody asked for it."""


class GraphCall(Frozen, frozen=True):
    """A kernel call of a graph."""

    kernel: str
    """Symbol of the kernel in its library."""
    task: int | None
    """Position among the tasks; null where it is not known."""
    nodes: tuple[str, ...]
    """Nodes of the model that this call computes."""
    added: bool = False
    """Whether the compiler added it for these nodes, as where a layout changes."""
    reads: tuple[int, ...] = ()
    """Positions of earlier calls whose results it reads."""


class KernelGraph(Frozen, frozen=True):
    """A function of the graph as it was compiled."""

    library: str
    """The file that holds its kernels."""
    function: str
    """`main`, or a body of a loop or of a branch."""
    calls: tuple[GraphCall, ...]
    """In the order of the function."""

    @model_validator(mode="after")
    def _reads_earlier_calls(self) -> Self:
        for place, call in enumerate(self.calls):
            if not all(0 <= read < place for read in call.reads):
                raise ValueError(f"calls.{place}.reads: a call reads the results of earlier ones")
        return self


class TuningCurve(Frozen, frozen=True):
    """How the tuned kernels became faster by the schedules of one engine, or of all."""

    engine: str
    """Name of the engine; `all` for all of several."""
    trials: Count
    failed: Count
    """Of these, trials without a time."""
    points: Annotated[tuple[tuple[Amount, Amount], ...], Field(min_length=1)]
    """Seconds since tuning began, and seconds of all tuned kernels with the best schedules so far;
    each where that became less."""


class TuningCourse(Frozen, frozen=True):
    """How tuning came to its times, from the trials of its session in this store."""

    ended: str
    """Why it ended."""
    seconds: Amount
    """How long it took."""
    curves: Annotated[tuple[TuningCurve, ...], Field(min_length=1)]
    """That of all engines first, where there are several."""


class TaskDifference(Frozen, frozen=True):
    """A task whose schedule or time is another one than in the last build."""

    name: str
    old: str | None
    """Engine and implementation; null for a task that is new."""
    new: str | None
    """The same now; null for a task that is gone."""
    old_seconds: Amount | None
    """Of one call, measured by tuning; null where it was not."""
    new_seconds: Amount | None


class SinceLastBuild(Frozen, frozen=True):
    """What changed since the last build of the same pipeline file in this store."""

    fields: tuple[str, ...] = ()
    """Fields of the pipeline file, and of `--set`, that are other now, a sentence each."""
    stages: dict[str, tuple[str, ...]]
    """What else stages depend on and is other now, a sentence each, by stage."""
    tasks: tuple[TaskDifference, ...]


class KernelTime(Frozen, frozen=True):
    """What a kernel takes in the built model."""

    name: str
    """Its symbol."""
    task: int | None
    """Position among the tasks; null where it is not known."""
    calls: Count
    """In one run."""
    seconds: Amount
    """Of all calls in one run."""
    bound: Amount
    """What they would take at the machine's peaks of operations or of bytes, the longer one."""


class ProfileReport(Frozen, frozen=True):
    """Where the time of the built model goes."""

    library: str
    threads: int
    runs: int
    whole: Amount
    """Seconds of a run that nothing watches."""
    sum: Amount
    """Seconds of all kernels in one run."""
    gflops: Amount
    """Operations of a product of float32 matrices, in billions a second."""
    gbps: Amount
    """Bytes that a copy reads and writes, in billions a second."""
    kernels: tuple[KernelTime, ...]
    """In the order of their first calls."""
    disturbed: str | None = None
    """What took the processor meanwhile, if anything did."""


class PackageReport(Frozen, frozen=True):
    """The file that was made."""

    path: str
    size: int
    """Bytes."""
    sha256: str


class RunReport(Frozen, frozen=True):
    """A run, version 1. What the run did not get to is null or empty."""

    version: Literal[1] = 1
    """Version of this grammar."""
    origin: Origin = "run"
    """What it was made from; a file of a build tells less than its run."""
    pipeline: str | None
    """Name of the pipeline; null if its file can not be read."""
    configuration: dict[str, Any] | None
    """The sections of the pipeline file that decide the build, with defaults and overrides."""
    exit_code: int
    outcome: Outcome
    error: str | None
    """What ended the run."""
    seconds: float
    stages: tuple[StageReport, ...]
    warnings: tuple[Notice, ...]
    tasks: tuple[TaskReport, ...]
    """In the order of the model."""
    graphs: tuple[KernelGraph, ...] = ()
    """The model as it was compiled, by kernel; none where nothing was built."""
    headroom: tuple[TaskHeadroom, ...] = ()
    """What tuning left to gain in each task; none where nothing was tuned."""
    tuning: TuningCourse | None = None
    """The course of tuning; null where nothing was tuned, or another store has its trials."""
    since: SinceLastBuild | None = None
    """What changed since the last build; null where this is the first one."""
    profile: ProfileReport | None = None
    """Times of kernels in the built model; null where nobody asked for them."""
    searched_share: float | None = None
    """Share of the kept tasks' time in tasks where an engine searched, in this store."""
    measured_share: float | None = None
    """Share of that time in tasks whose schedule this store has measured."""
    steady_share: float | None = None
    """Share of that time in tasks whose measurements agree with each other."""
    claimed: int | None = None
    """Tasks built with what a lock or a remote says, whose times were not measured here."""
    verification: Verification | None
    """What the comparison with a reference showed."""
    verified: str | None = None
    """The same in a line, where a file of a build says no more."""
    benchmark: BenchmarkReport | None
    """What this very run measured; null where it did not: times are never taken from the store."""
    gates: tuple[CheckedGate, ...]
    """What became of each gate that was checked."""
    package: PackageReport | None
    versions: dict[str, str | None]
    """What built it."""
    sources: dict[str, str] = {}
    """Digests of the files that it is made from, such as `import.model`, as a lock has them."""
    machine: dict[str, Any] | None
    """The machine, as far as it decides how fast code runs; no name, no user, no path."""
    target: dict[str, Any] | None = None
    """What the build is compiled for; null where nothing was built."""
    inputs: tuple[Port, ...] = ()
    """Inputs of the build, in call order."""
    outputs: tuple[Port, ...] = ()
    """Outputs of the build, in order."""

    def text(self) -> str:
        """Write it as JSON."""
        return pretty(self.model_dump(mode="json"))

    def _repr_html_(self) -> str:
        """Return the page's body, without its style and script; Jupyter calls it."""
        from autopipe.report.html.page import write_build
        from autopipe.report.html.view import BuildView

        return write_build(BuildView(self))

    def times(self) -> Baseline:
        """Return what this run measured, as later ones are compared with it. Raises ConfigError."""
        if self.benchmark is None or self.pipeline is None:
            how = "`autopipe run FILE --force benchmark --report PATH.json` makes one that has"
            raise ConfigError(f"the report has no times, for its run measured none; {how}")
        try:
            return to_baseline(self.benchmark, self.pipeline, self.benchmark.device)
        except ValidationError as error:
            raise ConfigError(
                f"the report's times can not be: {format_first_error(error)}"
            ) from error


class BuildsReport(Frozen, frozen=True):
    """A run of several builds, version 1."""

    version: Literal[1] = 1
    """Version of this grammar."""
    exit_code: int
    """The largest of the builds' exit codes."""
    builds: tuple[RunReport, ...]
    """Those that were run, in order."""


def as_json(*reports: RunReport) -> str:
    """Write the report of a run, or those of several builds, as JSON."""
    if len(reports) == 1:
        return reports[0].text()
    code = max((report.exit_code for report in reports), default=0)
    return pretty(BuildsReport(exit_code=code, builds=reports).model_dump(mode="json"))


def read_report(path: Path) -> RunReport:
    """Read the report of a run. Raises ConfigError."""
    reports = load_builds(path)
    if isinstance(reports, RunReport):
        return reports
    one = "`autopipe run FILE --build NAME --report PATH.json` writes that of one"
    raise ConfigError(f"{format_value(path, 4096)}: the report of several builds; {one}")


def load_builds(path: Path) -> RunReport | BuildsReport:
    """Read the report of a run, or those of several builds. Raises ConfigError."""
    try:
        data = foreign.read(path, _LARGEST)
    except OSError as error:
        hint = "`autopipe run FILE --report PATH.json` writes it"
        raise ConfigError(f"{format_value(path, 4096)}: {error.strerror}; {hint}") from error
    try:
        document = foreign.parse(data)
        several = isinstance(document, dict) and "builds" in document
        return (BuildsReport if several else RunReport).model_validate_json(data)
    except foreign.MalformedError as error:
        message = f"{format_value(path, 4096)}: not the report of a run: Invalid JSON: {error}"
        raise ConfigError(message) from None
    except ValidationError as error:
        message = (
            f"{format_value(path, 4096)}: not the report of a run: {format_first_error(error)}"
        )
        raise ConfigError(message) from error
