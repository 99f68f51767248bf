"""The stage contract: the declarations of a stage, and the context in which it runs.

A stage is a frozen value. Its fields are its parameters, its class variables are its
declaration, and `run` is its behaviour. Nothing else enters its key.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, Self

from autopipe.config.frozen import Frozen
from autopipe.config.pipeline import Pipeline
from autopipe.environment.facet import Facet
from autopipe.pipeline.events import Emit
from autopipe.store.artifact import Kind


class Need(NamedTuple):
    """An input: its kind, and whether it is optional."""

    kind: Kind
    optional: bool = False


class Diagnostics(NamedTuple):
    """Additional output of a run. It is in no key."""

    ir_folder: Path | None = None
    """Folder for the module after each pass that changes it, with a subfolder for each stage."""
    pass_times: bool = False
    """Whether the time of each pass is reported."""
    verbosity: int = 0
    """Level of the log: 1 for decisions, 2 for each step."""

    @property
    def shows_passes(self) -> bool:
        """Whether stages with passes have to run, though cached."""
        return self.ir_folder is not None or self.pass_times

    def of_build(self, name: str | None) -> "Diagnostics":
        """Return those of one of several builds, which has a folder of its own."""
        if self.ir_folder is None or name is None:
            return self
        return self._replace(ir_folder=self.ir_folder / name)

    def stages(self, stages: "Iterable[Stage]") -> frozenset[str]:
        """Return the names of the stages that have to run, though cached."""
        return frozenset(one.name for one in stages if self.shows_passes and one.runs_passes)


NO_DIAGNOSTICS: Final = Diagnostics()


class Context(NamedTuple):
    """Everything a running stage can access: inputs, declared facts, output folders, events."""

    inputs: Mapping[str, Path]
    """Directory of each available input, by the name in `needs`; read only."""
    facts: Mapping[Facet, Mapping[str, object]]
    """Facts of the facets in `reads`."""
    out: Path
    """Output directory of the artifact; empty at the start of every attempt."""
    work: Path
    """Scratch directory that survives an interrupted attempt with the same key, and only that."""
    records: Path
    """File of the tuning records, shared by all pipelines of this store; may not exist yet."""
    emit: Emit
    """Sends an event to the reporter."""
    forced: bool = False
    """Whether the user forces a new run, regardless of earlier results."""
    diagnostics: Diagnostics = NO_DIAGNOSTICS


class Stage(Frozen, ABC, frozen=True):
    """One step of a pipeline: parameters as fields, behaviour in `run`."""

    name: ClassVar[str]
    """Name on the command line, in reports and in the store."""
    version: ClassVar[int]
    """Bump when the same inputs would now produce another result."""
    produces: ClassVar[Kind]
    needs: ClassVar[Mapping[str, Need]] = {}
    """Inputs, by the name of the stage that produces them."""
    reads: ClassVar[frozenset[Facet]] = frozenset()
    """Facets the stage may see."""
    cached: ClassVar[bool] = True
    """False for a stage that measures: its result is never reused as a new one. It runs if its
    inputs have changed, or by force, and is skipped otherwise."""

    runs_passes: ClassVar[bool] = False
    """Whether it runs passes of the compiler, which `Diagnostics` shows."""

    imported_meanwhile: ClassVar[tuple[str, ...]] = ()
    """Modules of the stages after it, which are imported once while it runs, on another core."""

    seconds: ClassVar[float | None] = 30 * 60.0
    """Time limit in seconds; None where a budget limits it."""

    @classmethod
    @abstractmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self | None:
        """Return the stage as a pipeline file configures it, or None where it is switched off.

        `base` is the folder of the file, which relative paths start from.
        """

    @abstractmethod
    def run(self, ctx: Context) -> str:
        """Read `ctx.inputs`, write the artifact into `ctx.out`, return a summary of one line.

        Runs in a child process that has TVM imported and may crash. Raises an
        `AutopipeError` for errors that a user can act on.
        """

    def sources(self) -> Mapping[str, Path]:
        """Return files outside the store that the stage reads; they enter its key by content."""
        return {}

    def keyed(self) -> frozenset[Facet]:
        """Return the facets in `reads` that can change the output of the stage."""
        return self.reads

    def unkeyed(self) -> frozenset[str]:
        """Return the fields that cannot change the output of the stage."""
        return frozenset()
