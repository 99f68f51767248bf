"""The contents of a lock: every decision that a build depends on, and digests of its results."""

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints

from autopipe.artifacts.numbers import Amount, Count
from autopipe.backends import BACKENDS
from autopipe.config.frozen import Frozen
from autopipe.config.model import Digest
from autopipe.config.names import TargetKind
from autopipe.config.target import Arch, Bytes, Feature, Hardware, Word

Schedule = dict[str, Any] | Annotated[str, StringConstraints(pattern=r"^trace [0-9a-f]{12}$")]
"""A template with its knobs; or the prefix of the digest of a trace, which is in the records."""


class LockedHardware(Hardware, frozen=True):
    """Hardware parameters of a resolved target: its caches are known."""

    l1: Bytes
    l2: Bytes
    l3: Bytes


class LockedTarget(Frozen, frozen=True):
    """A resolved target, as `environment.resolve` returns it."""

    arch: Arch | None = None
    kind: TargetKind
    mcpu: Word
    mattr: tuple[Feature, ...]
    mtriple: Word
    num_cores: Annotated[int, Field(ge=1, le=1024)]
    hardware: LockedHardware


def _check_target(value: dict[str, Any]) -> dict[str, Any]:
    """Check the types of a resolved target, which stages read as it is."""
    target = LockedTarget.model_validate_json(json.dumps(value), strict=True)
    if (target.arch is not None) is not ("arch" in BACKENDS[target.kind].fields):
        raise ValueError(f"arch {target.arch} does not belong to kind {target.kind}")
    for name in ("mcpu", "arch"):
        if value.get(name) == "native":
            raise ValueError(f"{name} is native, which is no processor")
    return value


class LockedTask(Frozen, frozen=True):
    """A task, and how it was scheduled."""

    name: str
    """Name of its function."""
    workload: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]+$")]
    """Hash of its loops."""
    ops: tuple[str, ...]
    """Operators it came from."""
    calls: Annotated[Count, Field(ge=1)]
    """How often a run of the model calls it."""
    engine: str
    """The engine that proposed the schedule."""
    implementation: str
    """Implementation that was scheduled."""
    schedule: Schedule | None
    """The schedule; null for plain loops and for a fallback."""
    microseconds: tuple[Amount, Amount, Amount] | None
    """Minimum, median and maximum measured time of one call; null for a fallback."""
    trials: Count
    """Trials spent on the task."""

    @property
    def choice(self) -> dict[str, Any]:
        """Return the fields that determine the code of the task."""
        return self.model_dump(include={"workload", "engine", "implementation", "schedule"})


class Lock(Frozen, frozen=True):
    """A lock file, version 1."""

    version: Literal[1]
    """Version of this grammar."""
    pipeline: str
    """Name of the pipeline."""
    configuration: dict[str, Any]
    """The sections of the pipeline file that determine the bytes, with their defaults."""
    sources: dict[str, Digest]
    """Files that the stages read, by stage and name."""
    target: Annotated[dict[str, Any], AfterValidator(_check_target)]
    """The resolved target."""
    versions: dict[str, dict[str, str | None]]
    """Further versions that determine the bytes, by facet."""
    stages: dict[str, int]
    """Versions of the stages."""
    records: Digest | None
    """Digest of the records beside the lock; null where nothing was tuned."""
    tasks: tuple[LockedTask, ...]
    """Every task, in the order of the model."""
    artifacts: dict[str, Digest]
    """Expected digests of the build: `lib.so`, `weights.safetensors`, and the package."""
