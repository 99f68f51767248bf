"""A tuning record: one trial, and where it holds."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple, Self

from autopipe import foreign
from autopipe.artifacts.numbers import SLOWEST
from autopipe.backends import BACKENDS
from autopipe.backends.cpu import CPU

FASTEST: Final = 1e-10
"""Seconds below which a time is none: a cycle of a processor of 10 GHz."""

REPEAT_SUFFIX: Final = "/run-off"
"""Follows the session name in records of repeated measurements, which are no trials."""

_UNSTEADY: Final = 1.5
"""How many times the shortest repeat the longest may take; on a machine of their own they differ
by a few percent."""


class Platform(NamedTuple):
    """What a time depends on besides the schedule, each as canonical JSON."""

    target: str
    """The exact target."""
    versions: str
    """Versions of TVM, tvm-ffi and LLVM."""
    device: str
    """The machine that measured."""

    @classmethod
    def of(cls, *facts: Mapping[str, object]) -> Self:
        """Return the platform of these facts: target, versions, device."""
        texts = (json.dumps(fact, sort_keys=True, separators=(",", ":")) for fact in facts)
        return cls(*texts)

    def on(self, device: Mapping[str, object] | None) -> "Platform":
        """Return it with another device; null for this one."""
        if device is None:
            return self
        return self._replace(device=json.dumps(device, sort_keys=True, separators=(",", ":")))

    def timed_by(self, clock: str | None) -> "Platform":
        """Return it with the clock of its times; null for a loop around one kernel."""
        if clock is None:
            return self
        device = {**_parse_fields(self.device), "clock": clock}
        return self._replace(device=json.dumps(device, sort_keys=True, separators=(",", ":")))

    def least(self, flops: float) -> float:
        """Return the lower bound of the seconds that so many operations take."""
        target = _parse_fields(self.target)
        backend = BACKENDS.get(str(target.get("kind")), CPU)
        cores = target.get("num_cores")
        return max(FASTEST, flops / backend.peak_flops(max(1, cores if type(cores) is int else 1)))


class Record(NamedTuple):
    """One trial of one workload."""

    workload: str
    """Hash of the workload, as in `tasks.json`."""
    engine: str
    implementation: str
    schedule: str
    """How to make it, as `schedules.replay` reads it: TVM's trace, or a template and its knobs."""
    seconds: tuple[float, ...]
    """Time of one call, a value a repeat; empty if the trial failed."""
    error: str | None
    """Why the trial failed; null if it did not."""
    cut: bool
    """Whether the trial was ended early, so that its time is coarse."""
    measured: str
    """When, in UTC, as ISO 8601."""
    session: str
    """The tuning session that measured it."""

    @property
    def median(self) -> float:
        """Seconds of one call; infinite if there is no time that can be true."""
        sound = all(FASTEST <= value < SLOWEST for value in self.seconds)
        return median(self.seconds) if self.seconds and sound else math.inf

    @property
    def unsteady(self) -> bool:
        """Whether its repeats differ so much that something else must have run beside them."""
        return bool(self.seconds) and not is_steady(self.seconds)

    def believed(self, least: float) -> Self:
        """Return the record, or a failed trial if a time is below `least` seconds."""
        if not any(0 < value < least for value in self.seconds):
            return self
        error = f"the timer returned {min(self.seconds):.1e} s, which no processor reaches"
        return self._replace(seconds=(), error=error)

    def checksum(self, platform: Platform) -> str:
        """Digest the record together with where it holds: sha256, 64 hex digits."""
        content = {"record": self._asdict(), "platform": platform._asdict()}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def is_steady(seconds: Sequence[float]) -> bool:
    """Tell whether repeats differ so little that nothing else ran beside them."""
    return max(seconds) <= _UNSTEADY * min(seconds)


def _parse_fields(text: str) -> dict[str, object]:
    try:
        return foreign.parse_object(text)
    except foreign.MalformedError:
        return {}
