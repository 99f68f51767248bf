"""The report of a run: the JSON document from which the other forms are generated."""

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
from autopipe.errors import ConfigError, convert_os_errors
from autopipe.store.canonical import pretty
from autopipe.tasks.shares import Shares

State = Literal["cached", "skipped", "finished", "failed", "interrupted", "not_run"]
Outcome = Literal["finished", "failed", "interrupted"]
Origin = Literal["run", "build", "lock", "package"]

_LARGEST: Final = 64 << 20


class StageReport(Frozen, frozen=True):
    """The result of a stage."""

    stage: str
    state: State
    """`cached` is taken from the store; `skipped` has measured this build before; stages after a
    failed one are `not_run`."""
    seconds: float | None = None
    """Its duration; null if it did not finish."""
    digest: str | None = None
    """Digest of its artifact."""
    summary: str | None = None
    """A summary in one line, or the reason why it was skipped."""
    error: str | None = None


class Notice(Frozen, frozen=True):
    """A warning."""

    stage: str
    message: str


class TaskReport(Frozen, frozen=True):
    """A task and its schedule."""

    name: str
    workload: str
    calls: Count
    """Number of calls in a run of the model."""
    engine: str
    implementation: str
    seconds: Amount | None
    """Of one call, measured by tuning; null for an unmeasured fallback."""
    reason: str
    """The reason for this schedule."""
    share: Amount | None = None
    """Of the time of all tasks: measured before the search, otherwise estimated."""
    in_model: Amount | None = None
    """Seconds of one call inside the whole model, measured by tuning; null where that did not
    run."""
    dropped: str | None = None
    """The reason why it was not tuned; null for a kept task."""
    trials: Count = 0
    """Trials of tuning."""
    failed: Count = 0
    """Of these, trials without a time."""
    flops: Amount = 0.0
    """Floating-point operations of one call; 0 if unknown."""
    bytes: Count = 0
    """Bytes of all arguments of one call; 0 if unknown."""
    result_bytes: Count = 0
    """Bytes of the results of one call; 0 if unknown."""
    nodes: tuple[str, ...] = ()
    """Nodes of the model that its kernels compute; empty if unknown."""
    ops: tuple[str, ...] = ()
    """Names of its operators."""
    computes: tuple[str, ...] = ()
    """Its operators with tensors and attributes, a line each."""
    schedule: tuple[str, ...] = ()
    """Template and knobs, or steps of the trace, a line each; empty without a record."""
    problems: tuple[str, ...] = ()
    """Rejected schedules, crashed candidates, and the reason why no check was possible."""
    tir: str | None = None
    """Its scheduled TIR as TVMScript; null unless requested."""


class GraphCall(Frozen, frozen=True):
    """A kernel call of a graph."""

    kernel: str
    """Symbol of the kernel in its library."""
    task: int | None
    """Position among the tasks; null if unknown."""
    nodes: tuple[str, ...]
    """Nodes of the model that this call computes."""
    added: bool = False
    """Whether the compiler added it for these nodes, such as for a change of layout."""
    reads: tuple[int, ...] = ()
    """Positions of earlier calls of which it reads the results."""


class KernelGraph(Frozen, frozen=True):
    """A compiled function of the graph."""

    library: str
    """The file that holds its kernels."""
    function: str
    """`main`, or a body of a loop or of a branch."""
    calls: tuple[GraphCall, ...]
    """The calls in the order of the function."""

    @model_validator(mode="after")
    def _reads_earlier_calls(self) -> Self:
        for place, call in enumerate(self.calls):
            if not all(0 <= read < place for read in call.reads):
                raise ValueError(f"calls.{place}.reads: a call reads the results of earlier ones")
        return self


class TuningCurve(Frozen, frozen=True):
    """The best time of all tuned kernels over the tuning time, for one engine or all."""

    engine: str
    """Name of the engine; `all` for all of several."""
    trials: Count
    failed: Count
    """Of these, trials without a time."""
    points: Annotated[tuple[tuple[Amount, Amount], ...], Field(min_length=1)]
    """Seconds since tuning began, and seconds of all tuned kernels with the best schedules so far;
    one point per improvement."""


class TuningCourse(Frozen, frozen=True):
    """The course of tuning, from the trials of its session in this store."""

    ended: str
    """The reason of its end."""
    seconds: Amount
    """Its duration."""
    curves: Annotated[tuple[TuningCurve, ...], Field(min_length=1)]
    """The curves, that of all engines first if there are several."""


class TaskDifference(Frozen, frozen=True):
    """A task with a different schedule or time than in the last build."""

    name: str
    old: str | None
    """Engine and implementation before; null for a new task."""
    new: str | None
    """The same now; null for a removed task."""
    old_seconds: Amount | None
    """Of one call, measured by tuning; null if unmeasured."""
    new_seconds: Amount | None


class SinceLastBuild(Frozen, frozen=True):
    """The changes since the last build of the same pipeline file in this store."""

    fields: tuple[str, ...] = ()
    """Changed fields of the pipeline file and of `--set`, a sentence each."""
    stages: dict[str, tuple[str, ...]]
    """Other changed inputs and parameters of stages, a sentence each, by stage."""
    tasks: tuple[TaskDifference, ...]


class KernelTime(Frozen, frozen=True):
    """The time of a kernel in the compiled model."""

    name: str
    """Its symbol."""
    task: int | None
    """Position among the tasks; null if unknown."""
    calls: Count
    """Number of calls in one run."""
    seconds: Amount
    """Seconds of all calls in one run."""
    bound: Amount
    """The longer of their times at the machine's peak operations and at its peak bandwidth."""


class ProfileReport(Frozen, frozen=True):
    """The times of the compiled model's kernels."""

    library: str
    threads: int
    runs: int
    whole: Amount
    """Seconds of a run without instrument."""
    sum: Amount
    """Seconds of all kernels in one run."""
    gflops: Amount
    """Measured peak of a float32 matmul, in billions of operations a second."""
    gbps: Amount
    """Measured bandwidth of a copy, reads and writes, in billions of bytes a second."""
    kernels: tuple[KernelTime, ...]
    """The kernels in the order of their first calls."""
    disturbed: str | None = None
    """Other programs that used the processor meanwhile, if any."""


class PackageReport(Frozen, frozen=True):
    """The package file."""

    path: str
    size: int
    """Bytes."""
    sha256: str


class RunReport(Frozen, frozen=True):
    """A run, version 1. Parts that the run did not reach are null or empty."""

    version: Literal[1] = 1
    """Version of this grammar."""
    origin: Origin = "run"
    """Its source; a file of a build has fewer facts than its run."""
    pipeline: str | None
    """Name of the pipeline; null if its file cannot be read."""
    configuration: dict[str, Any] | None
    """The sections of the pipeline file that decide the build, with defaults and overrides."""
    exit_code: int
    outcome: Outcome
    error: str | None
    """The error that ended the run."""
    seconds: float
    stages: tuple[StageReport, ...]
    warnings: tuple[Notice, ...]
    tasks: tuple[TaskReport, ...]
    """The tasks in the order of the model."""
    graphs: tuple[KernelGraph, ...] = ()
    """The compiled model by kernel; empty without a build."""
    headroom: tuple[TaskHeadroom, ...] = ()
    """The headroom of each task above its bound; empty without tuning."""
    tuning: TuningCourse | None = None
    """The course of tuning; null without tuning, or where another store has its trials."""
    since: SinceLastBuild | None = None
    """The changes since the last build; null for the first one."""
    profile: ProfileReport | None = None
    """Times of kernels in the compiled model; null unless requested."""
    searched_share: float | None = None
    """Share of the kept tasks' time in tasks where an engine searched, in this store."""
    measured_share: float | None = None
    """Share of that time in tasks with a schedule that this store has measured."""
    steady_share: float | None = None
    """Share of that time in tasks with measurements that agree with each other."""
    claimed: int | None = None
    """Tasks with a schedule of a lock or a remote that was not measured here."""
    verification: Verification | None
    """The result of the comparison with a reference."""
    verified: str | None = None
    """The same in one line, for a file of a build."""
    benchmark: BenchmarkReport | None
    """The benchmark of this run; null without one: times are never taken from the store."""
    gates: tuple[CheckedGate, ...]
    """The outcome of each checked gate."""
    package: PackageReport | None
    versions: dict[str, str | None]
    """Versions of the packages that built it."""
    sources: dict[str, str] = {}
    """Digests of its source files, such as `import.model`, as in a lock."""
    machine: dict[str, Any] | None
    """The properties of the machine that determine the speed of code; no name, user or path."""
    target: dict[str, Any] | None = None
    """The target of the build; null without a build."""
    inputs: tuple[Port, ...] = ()
    """Inputs of the build, in call order."""
    outputs: tuple[Port, ...] = ()
    """Outputs of the build, in order."""

    def text(self) -> str:
        """Format it as JSON."""
        return pretty(self.model_dump(mode="json"))

    @property
    def shares(self) -> Shares | None:
        """The shares of the tuned time; None without them."""
        if self.searched_share is None:
            return None
        return Shares(self.searched_share, self.measured_share or 0, self.steady_share or 0)

    def times(self) -> Baseline:
        """Return the times of this run as a baseline for later ones. Raises ConfigError."""
        if self.benchmark is None or self.pipeline is None:
            how = "`autopipe run FILE --force benchmark --report PATH.json` makes one that has"
            raise ConfigError(f"the report has no times, for its run measured none; {how}")
        try:
            return to_baseline(self.benchmark, self.pipeline, self.benchmark.device)
        except ValidationError as error:
            raise ConfigError(
                f"the report's times cannot be: {format_first_error(error)}"
            ) from error


class BuildsReport(Frozen, frozen=True):
    """A run of several builds, version 1."""

    version: Literal[1] = 1
    """Version of this grammar."""
    exit_code: int
    """The largest of the builds' exit codes."""
    builds: tuple[RunReport, ...]
    """The builds of the run, in order."""


def as_json(*reports: RunReport) -> str:
    """Format the report of a run, or those of several builds, as JSON."""
    if len(reports) == 1:
        return reports[0].text()
    code = max((report.exit_code for report in reports), default=0)
    return pretty(BuildsReport(exit_code=code, builds=reports).model_dump(mode="json"))


def read_report(path: Path) -> RunReport:
    """Read the report of a run. Raises ConfigError."""
    reports = load_builds(path)
    if isinstance(reports, RunReport):
        return reports
    hint = "`autopipe run FILE --build NAME --report PATH.json` writes that of one"
    raise ConfigError(f"{format_value(path, 4096)}: the report of several builds; {hint}")


def load_builds(path: Path) -> RunReport | BuildsReport:
    """Read the report of a run, or those of several builds. Raises ConfigError."""
    hint = "; `autopipe run FILE --report PATH.json` writes it"
    with convert_os_errors(ConfigError, format_value(path, 4096), hint):
        data = foreign.read(path, _LARGEST)
    try:
        document = foreign.parse(data)
        several = isinstance(document, dict) and "builds" in document
        return (BuildsReport if several else RunReport).model_validate_json(data)
    except foreign.MalformedError as error:
        reason = f"Invalid JSON: {error}"
    except ValidationError as error:
        reason = format_first_error(error)
    raise ConfigError(f"{format_value(path, 4096)}: not the report of a run: {reason}")
