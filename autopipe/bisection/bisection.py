"""What comparing every kernel call of a build showed, as a document."""

from enum import StrEnum

from autopipe.artifacts.document import Part


class CallDifference(Part, frozen=True):
    """How far the outputs of a kernel call are from what they should be."""

    agrees: bool
    max_abs: float | None = None
    """Largest absolute error; null where it is not finite, or there is nothing to compare."""
    max_rel: float | None = None
    """The same, relative to the largest expected value."""
    reason: str | None = None
    """What is wrong, in words; null where it agrees."""


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
    """The value of the model that it makes, by its name; null where that is not known."""
    reference: CallDifference | None = None
    """Against that value in the reference runtime; null where they cannot be compared."""
    sources: tuple[int, ...] = ()
    """Positions of the calls whose outputs it reads."""


class Cause(StrEnum):
    """Why a kernel is the first."""

    LOOPS = "loops"
    """It computes something else than its plain loops do."""
    REFERENCE = "reference"
    """It computes what its plain loops do, and the model leaves the reference runtime there."""
    CRASH = "crash"
    """It does not return."""


class Bisection(Part, frozen=True):
    """The kernel calls of a run, and the first one that is wrong."""

    case: str
    """Name of the inputs."""
    sizes: dict[str, int]
    """Of dynamic dimensions."""
    wrong: tuple[str, ...]
    """What is wrong with outputs of the model on these inputs, in words."""
    library: str
    calls: tuple[BisectedCall, ...]
    runtime: str | None = None
    """What computed the values that calls are compared with; null where nothing did."""
    notes: tuple[str, ...] = ()
    """What could not be compared, and why."""
    first: int | None = None
    """Position of the first call that is wrong."""
    cause: Cause | None = None

    @property
    def agrees(self) -> bool:
        """Whether neither a kernel nor an output is wrong."""
        return self.first is None and not self.wrong
