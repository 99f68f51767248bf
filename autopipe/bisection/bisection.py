"""The result of comparing every kernel call of a build, as a document."""

from enum import StrEnum

from autopipe.artifacts.document import Part


class CallDifference(Part, frozen=True):
    """Errors of the outputs of a kernel call against the expected ones."""

    agrees: bool
    max_abs: float | None = None
    """Largest absolute error; null where it is not finite, or there is nothing to compare."""
    max_rel: float | None = None
    """The same, relative to the largest expected value."""
    reason: str | None = None
    """Description of the error; null where it agrees."""


class BisectedCall(Part, frozen=True):
    """A kernel call of one run."""

    kernel: str
    nodes: tuple[str, ...]
    """Nodes of the model that it computes."""
    added: bool
    """Whether the compiler added it for these nodes."""
    scheduled: str
    """Engine and implementation, such as `static on direct`."""
    plain: CallDifference | None = None
    """Against the plain loops of the kernel, on the same inputs; null where these do not run."""
    tensor: str | None = None
    """Name of the value of the model that it computes; null where that is not known."""
    reference: CallDifference | None = None
    """Against that value in the reference runtime; null where they cannot be compared."""
    sources: tuple[int, ...] = ()
    """Positions of the calls whose outputs it reads."""


class Cause(StrEnum):
    """Why a kernel is the first wrong one."""

    LOOPS = "loops"
    """Its result differs from that of its plain loops."""
    REFERENCE = "reference"
    """It agrees with its plain loops, and is the first to differ from the reference runtime."""
    CRASH = "crash"
    """It does not return."""


class Bisection(Part, frozen=True):
    """The kernel calls of a run, and the first one that is wrong."""

    case: str
    """Name of the inputs."""
    sizes: dict[str, int]
    """Of dynamic dimensions."""
    wrong: tuple[str, ...]
    """Errors of the model's outputs on these inputs, described."""
    library: str
    calls: tuple[BisectedCall, ...]
    runtime: str | None = None
    """The runtime that computed the reference values; null where there are none."""
    notes: tuple[str, ...] = ()
    """Comparisons that were not possible, and why."""
    first: int | None = None
    """Position of the first call that is wrong."""
    cause: Cause | None = None

    @property
    def agrees(self) -> bool:
        """Whether neither a kernel nor an output is wrong."""
        return self.first is None and not self.wrong
