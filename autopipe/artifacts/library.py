"""`library.json`: what the stage *build* says of a library."""

from typing import Any, ClassVar, Final, Literal

from pydantic import PositiveInt

from autopipe.artifacts.document import ArtifactDocument, Part
from autopipe.artifacts.numbers import Amount, Count
from autopipe.artifacts.signature import Port, Signature, SizedLibrary
from autopipe.artifacts.tuning import ContenderResult, ListedFailure
from autopipe.config.backend_name import DeviceName
from autopipe.config.dimension import Dimension, DimensionName
from autopipe.config.frozen import Sparse

Short = Literal["products", "products and convolutions"]
SHORT: Final[tuple[Short, Short]] = ("products", "products and convolutions")
"""What is rounded where convolutions have their channels elsewhere, and where they have them last.
"""


class Rejected(Part, frozen=True):
    """A schedule that computes something else, so that the task has another one."""

    engine: str
    implementation: str
    reason: str | None
    """What was wrong."""
    folder: str | None
    """Where it is kept."""


class LibraryTask(Part, frozen=True):
    """A task, and how it was scheduled."""

    name: str
    workload: str
    """Hash of its loops."""
    calls: Count
    """How often one inference calls it."""
    engine: str
    """Name of the engine, or of the fallback."""
    implementation: str
    reason: str
    """Why this schedule."""
    seconds: Amount | None
    """Median measured time of one call; null for a fallback."""
    rule: int | None
    """Which rule of the policy the task fell under; null for none."""
    checked: bool
    """Whether it was compared with the plain loops."""
    unchecked: str | None
    """Why it was not."""
    rejected: tuple[Rejected, ...]
    """What was wrong, and stood before it."""
    contenders: tuple[ContenderResult, ...]
    """Who was measured for it, the fastest first."""
    failures: tuple[ListedFailure, ...]
    """What crashed, hung, took too much memory or raised something."""


class BuiltLibrary(Sparse, ArtifactDocument, frozen=True):
    """A library: how it is called, what it was built for and by, and how."""

    FILE: ClassVar[str] = "library.json"
    ADDED: ClassVar[frozenset[str]] = frozenset(
        {"dimensions", "entries", "halves", "rounded", "short"}
    )

    name: str
    """The model's name."""
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    weights: tuple[str, ...]
    threads: PositiveInt
    device: DeviceName
    target: dict[str, Any]
    """The resolved target."""
    versions: dict[str, str | None]
    """Versions of TVM and of the compilers below it."""
    libraries: dict[str, str]
    """Versions of the libraries that lie beside it, as it calls them."""
    claimed: dict[str, Amount]
    """Shares of time that are said to be searched, measured and steady."""
    tasks: tuple[LibraryTask, ...]
    """All tasks, in the order of the model."""
    dimensions: dict[DimensionName, Dimension] = {}
    """Sizes that are known only when it is called."""
    entries: tuple[SizedLibrary, ...] = ()
    """Libraries for likely sizes."""
    halves: tuple[str, ...] = ()
    """Names of weights that are stored in float16, and that the libraries take in float32."""
    rounded: tuple[str, ...] = ()
    """Names of the model's weights that are rounded to bfloat16."""
    short: Short | None = None
    """What multiplies in bfloat16, of what fits its instruction; null for nothing."""

    @property
    def signature(self) -> Signature:
        """Return how it is called."""
        return Signature(
            inputs=self.inputs, outputs=self.outputs, weights=self.weights, threads=self.threads,
            device=self.device, dimensions=self.dimensions, entries=self.entries,
            halves=self.halves,
        )  # fmt: skip
