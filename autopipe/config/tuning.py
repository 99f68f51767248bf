"""Section `tuning`: how much is measured, and how."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from autopipe.config.frozen import Frozen, Sparse
from autopipe.config.quantity import Duration

Count = Annotated[int, Field(ge=1, le=10_000_000)]


class Budget(Frozen, frozen=True):
    """Where tuning stops; whichever limit is met first."""

    trials: Count = 1000
    """Measured candidates over all tasks."""
    trials_per_task: Count | None = None
    """Measured candidates of one task at most."""
    time: Duration | None = None
    """Wall-clock time of tuning, resumed runs counted together."""
    early_stop: Count | None = None
    """Leave a task once this many trials in a row brought no better schedule."""


class Measure(Sparse, frozen=True):
    """How one candidate is built and timed."""

    ADDED: ClassVar[frozenset[str]] = frozenset({"clock"})

    build_timeout: Duration = 20.0
    """A candidate that compiles longer than this is dropped."""
    run_timeout: Duration = 10.0
    """A candidate that runs longer than this, all repeats together, is dropped."""
    clock: Literal["model", "loop"] = "model"
    """How a trial finds the caches: `model`, as the model leaves them for this kernel, one call at
    a time; `loop`, as the last call of the same kernel left them. A GPU knows `loop` only."""
    repeat: Annotated[int, Field(ge=1, le=1000)] = 3
    """Timed repeats of a candidate; the median counts."""
    min_repeat: Duration = 0.01
    """One repeat runs the candidate often enough to take at least this long; by the clock `model`,
    as often as fits with what is done between the calls, three times at least unless one call takes
    longer."""
    memory: Annotated[int, Field(ge=64, le=1_000_000)] = 4096
    """MiB a candidate may take beyond what the measuring process holds itself."""


class Tuning(Sparse, frozen=True):
    """The search for schedules. `tuning: null` builds with the records and fallbacks there are."""

    ADDED: ClassVar[frozenset[str]] = frozenset({"finalists", "library_price"})

    budget: Budget = Budget()
    """Limits of the search."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of the search. It does not make tuning repeatable: times decide, and times vary."""
    tuner: Literal["model", "random", "grid"] = "model"
    """How engine `autotvm` goes through the settings of a template's knobs: `model` measures what
    a cost model trained on all tasks promises most of, `random` any, `grid` one after the other."""
    batch: Annotated[int, Field(ge=1, le=1024)] = 32
    """Candidates a task proposes, and has measured, at a time."""
    finalists: Annotated[int, Field(ge=0, le=8)] = 3
    """How many schedules of a heavy task are compared inside the built model after the search; `1`
    only times who won the trials there, `0` nothing. It may take a sixth of the budget's time, or a
    minute; a budget of less than 100 trials has no time for it."""
    library_price: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Part of the time of all tasks that a library has to take off for each MiB that it adds to the
    package: 0.01 asks OpenBLAS for 24 %. `0` takes a library wherever it measured faster."""
    measure: Measure = Measure()
    """How one candidate is built and timed."""
