"""A tuning record: one trial, and where it holds."""

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from statistics import median

SLOWEST = 1e4
"""Seconds of one call beyond which a time is no measurement but a stub."""


@dataclass(frozen=True, slots=True)
class Platform:
    """What a time depends on besides the schedule, each as canonical JSON."""

    target: str
    """The exact target."""
    versions: str
    """Versions of TVM, tvm-ffi and LLVM."""
    device: str
    """The machine that measured."""


@dataclass(frozen=True, slots=True)
class Record:
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
        sound = all(math.isfinite(value) and 0 < value < SLOWEST for value in self.seconds)
        return median(self.seconds) if self.seconds and sound else math.inf

    def checksum(self, platform: Platform) -> str:
        """Digest the record together with where it holds: sha256, 64 hex digits."""
        content = {"record": asdict(self), "platform": asdict(platform)}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
