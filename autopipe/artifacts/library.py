"""`library.json`: the description of a library by the stage *build*."""

from typing import Any, ClassVar, Final, Literal

from autopipe.artifacts.document import ArtifactDocument, Part
from autopipe.artifacts.numbers import Amount, Count
from autopipe.artifacts.signature import Signature
from autopipe.artifacts.tuning import ContenderResult, ListedFailure

Short = Literal["products", "products and convolutions"]
SHORT: Final[tuple[Short, Short]] = ("products", "products and convolutions")
"""Which ops multiply in bfloat16, without and with channels last for convolutions."""


class Rejected(Part, frozen=True):
    """A wrong schedule that was replaced by another one."""

    engine: str
    implementation: str
    reason: str | None
    """The error."""
    folder: str | None
    """Its quarantine folder."""


class LibraryTask(Part, frozen=True):
    """A task, and how it was scheduled."""

    name: str
    workload: str
    """Hash of its loops."""
    calls: Count
    """Number of calls in one inference."""
    engine: str
    """Name of the engine, or of the fallback."""
    implementation: str
    reason: str
    """Why this schedule was selected."""
    seconds: Amount | None
    """Median measured time of one call; null for a fallback."""
    rule: int | None
    """Index of the matching rule of the policy; null for none."""
    checked: bool
    """Whether its result was compared with that of the plain loops."""
    unchecked: str | None
    """Why it was not compared."""
    rejected: tuple[Rejected, ...]
    """Wrong schedules that were ranked before it."""
    contenders: tuple[ContenderResult, ...]
    """The measured arms of the task, the fastest first."""
    failures: tuple[ListedFailure, ...]
    """Crashes, timeouts, memory overruns and exceptions."""


class BuiltLibrary(Signature, ArtifactDocument, frozen=True):
    """A library: its signature, target, versions and tasks."""

    FILE: ClassVar[str] = "library.json"

    name: str
    """The model's name."""
    target: dict[str, Any]
    """The resolved target."""
    versions: dict[str, str | None]
    """Versions of TVM and of the compilers below it."""
    libraries: dict[str, str]
    """Versions of the libraries beside it that it calls."""
    claimed: dict[str, Amount]
    """Shares of time that are unverified as searched, measured and steady."""
    tasks: tuple[LibraryTask, ...]
    """All tasks, in the order of the model."""
    rounded: tuple[str, ...] = ()
    """Names of the model's bfloat16 weights."""
    short: Short | None = None
    """Which eligible ops multiply in bfloat16; null for none."""

    @property
    def signature(self) -> Signature:
        """Return its signature alone."""
        return Signature(**{name: getattr(self, name) for name in Signature.model_fields})
