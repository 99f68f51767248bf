"""Section `tuning`: how much is measured, and how."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from autopipe.config.contradiction import Contradiction, raise_contradictions
from autopipe.config.frozen import Frozen, Sparse
from autopipe.config.quantity import Duration

_ADDRESS: Final = re.compile(r"(tls|tcp)://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")

_PORTS: Final = 1 << 16

CERTIFY: Final = "autopipe worker --make-certificates DIR"
"""The command that makes certificates."""

Count = Annotated[int, Field(ge=1, le=10_000_000)]


class Budget(Frozen, frozen=True):
    """Where tuning stops; whichever limit is met first."""

    trials: Count = 1000
    """Measured candidates over all tasks."""
    trials_per_task: Count | None = None
    """Measured candidates of one task at most."""
    time: Duration | None = None
    """Wall-clock time of tuning as a whole: checks, the comparison inside the model and waiting for
    programs that time on this machine are part of it, and resumed runs count together. What there
    is no time for is left out, and reported."""
    early_stop: Count | None = None
    """Leave a task once this many trials in a row brought no better schedule."""


def is_loopback(host: str) -> bool:
    """Tell whether a name or address is this very machine, which nobody else can listen to."""
    return host.strip("[]") in {"localhost", "127.0.0.1", "::1"}


def check_scheduler_address(text: str) -> str:
    """Return the address of a scheduler as it is; raise ValueError."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match[3]) < _PORTS:
        raise ValueError("should be an address such as tls://farm.example:8786")
    if match[1] == "tcp" and not is_loopback(match[2]):
        raise ValueError(
            "is another machine, and tcp:// lets anybody on the way run code on all of them: write"
            f" tls://, and make certificates by `{CERTIFY}`"
        )
    return text


def _check_tracker_address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < _PORTS):
        raise ValueError("should be host and port, such as 127.0.0.1:9190")
    return text


Scheduler = Annotated[
    str, StringConstraints(max_length=300), AfterValidator(check_scheduler_address)
]
Tracker = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9._\[\]:-]+$", max_length=300),
    AfterValidator(_check_tracker_address),
]
Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]

_OF: Final = {
    "scheduler": "farm", "label": "farm", "certificates": "farm", "tracker": "rpc", "key": "rpc",
}  # fmt: skip
"""Fields that only one runner knows."""

_NEEDED: Final = {"farm": "label", "rpc": "key"}
"""What a runner can not do without."""


class Measure(Sparse, frozen=True):
    """How one candidate is built and timed, and where.

    Where the machines are that do it, and how long they are waited for, is in no key and no lock.
    """

    ADDED: ClassVar[frozenset[str]] = frozenset({"clock", "runner", "label", "key"})

    runner: Literal["local", "farm", "rpc"] = "local"
    """Who builds and times: `local` this machine, `farm` machines of one kind, each of which runs
    `autopipe worker`, `rpc` devices that TVM's RPC tracker knows."""
    label: Label | None = None
    """For `farm`: what the workers call the kind of machine they are, such as `zen5`."""
    key: Label | None = None
    """For `rpc`: what the devices are called at the tracker."""
    scheduler: Annotated[Scheduler | None, Field(exclude=True)] = None
    """For `farm`: where the scheduler listens, `tls://host:port`; `tcp://` only on this machine."""
    certificates: Annotated[str | None, Field(exclude=True, min_length=1)] = None
    """For `farm`: folder with `ca.pem`, `farm.pem` and `farm.key`, relative to this file. Null is
    the one that `$AUTOPIPE_CERTIFICATES` names, or else `~/.config/autopipe/certificates`."""
    tracker: Annotated[Tracker | None, Field(exclude=True)] = None
    """For `rpc`: where the tracker listens, `host:port`."""
    anyone_on_the_network_may_run_code: Annotated[bool, Field(exclude=True)] = False
    """For `rpc`: take a tracker and devices that are not on loopback. TVM's RPC neither encrypts
    nor asks who somebody is: whoever reaches a device runs code there, and whoever is on the way
    changes times and results. Better is a tunnel by ssh."""
    connect_timeout: Annotated[Duration, Field(exclude=True)] = 10.0
    """For `farm` and `rpc`: how long a scheduler or tracker may take to answer."""
    wait_timeout: Annotated[Duration, Field(exclude=True)] = 60.0
    """For `farm` and `rpc`: how long a run waits while there is nobody who could measure."""
    session_timeout: Annotated[Duration, Field(exclude=True)] = 30.0
    """For `rpc`: how long a device belongs to one candidate."""

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
    as often as fits with what is done between the calls, and once at least."""
    memory: Annotated[int, Field(ge=64, le=1_000_000)] = 4096
    """MiB a candidate may take beyond what the measuring process holds itself."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        raise_contradictions("measure", self._contradictions())
        return self

    def _contradictions(self) -> Iterator[Contradiction]:
        """Yield what another runner is for, and what this one lacks."""
        for name, runner in _OF.items():
            value = getattr(self, name)
            if value is not None and runner != self.runner:
                yield (name,), value, f"is for runner {runner}, and `runner` is {self.runner}"
        if self.tracker is not None and not self.anyone_on_the_network_may_run_code:
            host = self.tracker.rpartition(":")[0]
            if not is_loopback(host):
                why = (
                    "is another machine, and TVM's RPC has neither encryption nor passwords: use a"
                    " tunnel (ssh -L), or say `anyone_on_the_network_may_run_code: true`"
                )
                yield ("tracker",), self.tracker, why
        needed = _NEEDED.get(self.runner)
        if needed is not None and getattr(self, needed) is None:
            yield (needed,), None, f"is needed: `runner` is {self.runner}"


class Reach(Frozen, frozen=True):
    """Where the machines are that measure. It can change no result, and is in no key."""

    scheduler: str | None = None
    """Address of a farm's scheduler."""
    certificates: str | None = None
    """Folder of the certificates; null for the usual one."""
    tracker: str | None = None
    """Host and port of TVM's RPC tracker."""
    anyone_on_the_network_may_run_code: bool = False
    """Whether tracker and devices may be elsewhere than on loopback."""
    connect_timeout: float = 10.0
    """Seconds that an answer may take."""
    wait_timeout: float = 60.0
    """Seconds in which somebody who can measure has to turn up."""
    session_timeout: float = 30.0
    """Seconds that a device belongs to one candidate."""

    @classmethod
    def of(cls, measure: Measure, base: Path) -> Self:
        """Return what a pipeline file in the folder `base` says."""
        own = {name: getattr(measure, name) for name in cls.model_fields}
        if measure.certificates is not None:
            own["certificates"] = str((base / measure.certificates).absolute())
        return cls(**own)


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
    finalists: Annotated[int, Field(ge=0, le=8)] = 8
    """How many schedules of a heavy task are compared inside the built model after the search; `1`
    only times who won the trials there, `0` nothing. It may take a quarter of the budget's time, or
    a minute; a budget of less than 100 trials has no time for it."""
    library_price: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Part of the time of all tasks that a library has to take off for each MiB that it adds to the
    package: 0.01 asks OpenBLAS for 24 %. `0` takes a library wherever it measured faster."""
    measure: Measure = Measure()
    """How one candidate is built and timed."""
