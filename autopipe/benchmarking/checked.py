"""What became of a gate."""

from enum import StrEnum

from autopipe.config.frozen import Frozen


class Outcome(StrEnum):
    """Whether a build may pass."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    """The times do not tell; the build passes, with a warning."""


class Checked(Frozen, frozen=True):
    """A gate, and what was found."""

    gate: str
    """Its field in the pipeline file, such as `gates.max_slowdown.onnxruntime`."""
    outcome: Outcome
    found: str
    """What was found, and what is allowed."""
