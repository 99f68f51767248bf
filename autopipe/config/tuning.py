"""Section `tuning`: the budget and the method of measurement."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints

from autopipe.config.frozen import Consistent, Contradiction, Frozen
from autopipe.config.quantity import Duration

_ADDRESS: Final = re.compile(r"(tls|tcp)://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")

_PORTS: Final = 1 << 16

CERTIFY: Final = "autopipe worker --make-certificates DIR"
"""The command that creates certificates."""

Count = Annotated[int, Field(ge=1, le=10_000_000)]


class Budget(Frozen, frozen=True):
    """Limits of tuning, of which the first one reached ends it."""

    trials: Count = 1000
    """Measured candidates over all tasks."""
    trials_per_task: Count | None = None
    """Measured candidates of one task at most."""
    time: Duration | None = None
    """Wall-clock time of tuning as a whole, including checks, the in-model comparison and waiting
    for other runs that time on this machine; resumed runs count together. Steps without enough
    time are omitted and reported."""
    early_stop: Count | None = None
    """Stop a task after this many consecutive trials without improvement."""


def is_loopback(host: str) -> bool:
    """Whether a name or address is a loopback, which no other machine can reach."""
    return host.strip("[]") in {"localhost", "127.0.0.1", "::1"}


def check_scheduler_address(text: str) -> str:
    """Validate the address of a scheduler and return it. Raises ValueError."""
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
"""Fields of only one runner."""

_NEEDED: Final = {"farm": "label", "rpc": "key"}
"""Required field of each runner."""


class Measure(Consistent, frozen=True):
    """The build and the measurement of one candidate.

    The addresses of machines, and the time to wait for them, are in no key and no lock.
    """

    runner: Literal["local", "farm", "rpc"] = "local"
    """The machines that build and time: `local` this machine, `farm` machines of one kind, each of
    which runs `autopipe worker`, `rpc` devices of TVM's RPC tracker."""
    label: Label | None = None
    """For `farm`: the label of the workers' kind of machine, such as `zen5`."""
    key: Label | None = None
    """For `rpc`: the key of the devices at the tracker."""
    scheduler: Annotated[Scheduler | None, Field(exclude=True)] = None
    """For `farm`: address of the scheduler, `tls://host:port`; `tcp://` only on this machine."""
    certificates: Annotated[str | None, Field(exclude=True, min_length=1)] = None
    """For `farm`: folder with `ca.pem`, `farm.pem` and `farm.key`, relative to this file. Null is
    that of `$AUTOPIPE_CERTIFICATES`, or `~/.config/autopipe/certificates`."""
    tracker: Annotated[Tracker | None, Field(exclude=True)] = None
    """For `rpc`: address of the tracker, `host:port`."""
    anyone_on_the_network_may_run_code: Annotated[bool, Field(exclude=True)] = False
    """For `rpc`: accept a tracker and devices that are not on loopback. TVM's RPC has neither
    encryption nor authentication: any host that reaches a device can run code there, and any host
    on the way can change times and results. An ssh tunnel is better."""
    connect_timeout: Annotated[Duration, Field(exclude=True)] = 10.0
    """For `farm` and `rpc`: time limit of an answer of the scheduler or tracker."""
    wait_timeout: Annotated[Duration, Field(exclude=True)] = 60.0
    """For `farm` and `rpc`: time limit of a wait for a free worker or device."""
    session_timeout: Annotated[Duration, Field(exclude=True)] = 30.0
    """For `rpc`: time for which one candidate holds a device."""

    build_timeout: Duration = 20.0
    """Time limit of compiling a candidate."""
    run_timeout: Duration = 10.0
    """Time limit of running a candidate, all repeats together."""
    clock: Literal["model", "loop"] = "model"
    """State of the caches in a trial: `model`, that in the model before each single call of the
    kernel; `loop`, that after the previous call of the same kernel. A GPU has `loop` only."""
    repeat: Annotated[int, Field(ge=1, le=1000)] = 3
    """Timed repeats of a candidate; the median counts."""
    min_repeat: Duration = 0.01
    """Least time of one repeat, which calls the candidate several times; by the clock `model` this
    includes the preparation of the caches, with at least one call."""
    memory: Annotated[int, Field(ge=64, le=1_000_000)] = 4096
    """MiB of a candidate beyond those of the measuring process."""

    def _contradictions(self) -> Iterator[Contradiction]:
        """Yield fields of other runners, and missing fields of this one."""
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
        required_field = _NEEDED.get(self.runner)
        if required_field is not None and getattr(self, required_field) is None:
            yield (required_field,), None, f"is needed: `runner` is {self.runner}"


class Reach(Frozen, frozen=True):
    """Addresses of the machines that measure. They change no result, and are in no key."""

    scheduler: str | None = None
    """Address of a farm's scheduler."""
    certificates: str | None = None
    """Folder of the certificates; None for the default."""
    tracker: str | None = None
    """Host and port of TVM's RPC tracker."""
    anyone_on_the_network_may_run_code: bool = False
    """Whether tracker and devices may be outside of loopback."""
    connect_timeout: float = 10.0
    """Time limit of an answer in seconds."""
    wait_timeout: float = 60.0
    """Seconds to wait for a worker or device."""
    session_timeout: float = 30.0
    """Seconds that a device belongs to one candidate."""

    @classmethod
    def of(cls, measure: Measure, base: Path) -> Self:
        """Read the addresses from a pipeline file in the folder `base`."""
        fields = {name: getattr(measure, name) for name in cls.model_fields}
        if measure.certificates is not None:
            fields["certificates"] = str((base / measure.certificates).absolute())
        return cls(**fields)


class Tuning(Frozen, frozen=True):
    """The search for schedules. `tuning: null` builds with existing records and fallbacks."""

    budget: Budget = Budget()
    """Limits of the search."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of the search. It does not make tuning reproducible: times decide, and times vary."""
    tuner: Literal["model", "random", "grid"] = "model"
    """Order in which engine `autotvm` measures the settings of a template's knobs: `model` by a
    cost model trained on all tasks, `random`, or `grid` in sequence."""
    batch: Annotated[int, Field(ge=1, le=1024)] = 32
    """Candidates of a task per batch."""
    finalists: Annotated[int, Field(ge=0, le=8)] = 8
    """Number of schedules of a heavy task that are compared inside the compiled model after the
    search; `1` only times the winner of the trials there, `0` nothing. It may take a quarter of the
    budget's time, three quarters of what is left if the search ends early, or a minute without a
    budget of time; fewer than 100 trials omit it."""
    library_price: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Part of the time of all tasks that a library must save for each MiB that it adds to the
    package: 0.01 requires 24 % of OpenBLAS. `0` uses a library wherever it measured faster."""
    measure: Measure = Measure()
    """The build and the measurement of one candidate."""
