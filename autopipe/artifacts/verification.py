"""`verify.json`: what the stage *verify* found."""

from collections import Counter
from enum import StrEnum
from typing import ClassVar

from autopipe.artifacts.document import ArtifactDocument, Part
from autopipe.config.dimension import append_sizes
from autopipe.config.frozen import Sparse


class Tolerance(Part, frozen=True):
    """How far an element may be off: `atol + rtol * |reference|`."""

    rtol: float
    """Relative to the element of the reference."""
    atol: float
    """Absolute."""


class OutputComparison(Sparse, Part, frozen=True):
    """What comparing one output on one case showed."""

    ADDED: ClassVar[frozenset[str]] = frozenset({"elsewhere", "undetermined"})

    output: str
    """Name of the output."""
    tolerance: Tolerance
    """What was allowed."""
    failure: str | None = None
    """Why it fails, in words; null if it passes."""
    max_abs: float | None = None
    """Largest absolute error; null where it cannot be computed."""
    max_rel: float | None = None
    """Largest relative error over elements whose reference is not zero."""
    used: float | None = None
    """Largest part of the allowed error that an element uses; above 1 it fails."""
    first_bad: tuple[int, ...] | None = None
    """Index of the first element that fails."""
    elsewhere: int | None = None
    """How many of its rows are others or in another order, where the reference's own are too with
    inputs moved by a hair; null where all were compared one by one."""
    undetermined: float | None = None
    """By which part of itself the reference moves where inputs move by a rounding, if that makes
    this output noise: then it has only to be as large; null where it is not."""
    enough_atol: float | None = None
    """The `atol` that would pass with this rtol; null where none that is allowed would."""
    enough_rtol: float | None = None
    """The `rtol` that would pass with this atol; null where none that is allowed would."""


class CaseOutcome(StrEnum):
    """What became of a case."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It tells nothing: the reference is not finite on it, or refuses it."""


class CheckedCase(Sparse, Part, frozen=True):
    """One case and how each output compared on it."""

    ADDED: ClassVar[frozenset[str]] = frozenset({"sizes", "generic", "reference", "seconds"})

    name: str
    """Name of the case."""
    sizes: dict[str, int] = {}
    """The size of each dimension that is open."""
    generic: bool = False
    """Whether the library for every size ran it, although there is one for just these sizes."""
    skipped: bool
    """An edge case outside the model's domain: the reference is not finite on it, or refuses it."""
    crashed: bool = False
    """Whether the build did not survive it."""
    reference: str | None = None
    """The reference that it was compared with, where that is another one: the first one refuses
    the case, or contradicts this one, with which the build agrees."""
    seconds: float | None = None
    """How long it took to run the build on it and to compare the outputs; null where that is not
    known."""
    outputs: tuple[OutputComparison, ...]
    """The outputs, in order; none if the case was skipped."""

    @property
    def told(self) -> str:
        """Return what it is called, with its sizes."""
        where = " in the library for every size" if self.generic else ""
        return append_sizes(f"case {self.name!r}", self.sizes) + where

    @property
    def outcome(self) -> CaseOutcome:
        """Whether the build passed it."""
        if self.skipped:
            return CaseOutcome.SKIPPED
        failed = any(output.failure for output in self.outputs)
        return CaseOutcome.FAILED if failed else CaseOutcome.PASSED


class Verification(Sparse, ArtifactDocument, frozen=True):
    """What the comparison of a build with a reference showed."""

    ADDED: ClassVar[frozenset[str]] = frozenset({"rounded_by", "failure"})
    FILE: ClassVar[str] = "verify.json"

    reference: str
    """The runtime that computed the expected outputs."""
    reference_version: str
    """Its version."""
    cases: tuple[CheckedCase, ...]
    """All cases that a model is made for, or nearly so, in order."""
    special: tuple[CheckedCase, ...] = ()
    """Cases with a few infinities, numbers that are none, or the smallest and largest there are; a
    build may fail one where its operators promise nothing about such numbers."""
    warnings: tuple[str, ...]
    """Why parts of the comparison prove nothing."""
    rounded_by: float | None = None
    """How far bfloat16 moves an output of random or real inputs, at most: the norm of the
    difference by that of the output. Null where nothing is rounded to it."""
    failure: str | None = None
    """Why the build fails, in words; null if it passes. Later batches of cases are left out."""

    @property
    def sizes(self) -> int:
        """Return at how many sizes it was compared; 0 without open sizes."""
        return len({tuple(case.sizes.items()) for case in self.cases if case.sizes})

    @property
    def binding(self) -> tuple[CheckedCase, ...]:
        """Return the cases that decide; of special ones it is known only where one fails."""
        return (*self.cases, *self.special) if self.failure else self.cases

    @property
    def extent(self) -> str:
        """Say on how many cases, and with open sizes at how many sizes, it was compared."""
        cases = f"{sum(not case.skipped for case in self.cases)} cases"
        return f"{cases} at {self.sizes} sizes" if self.sizes else cases

    def summary(self) -> str:
        """Return one line for people."""
        if self.failure is not None:
            return self.failure
        used = [output.used or 0.0 for case in self.cases for output in case.outputs]
        return (
            f"equal to {self._format_references()} on {self.extent}, "
            f"{max(used):.2%} of the allowed error used"
        ) + ("" if self.rounded_by is None else f"; {self.rounded_by:.2%} off by bfloat16")

    def _format_references(self) -> str:
        """Name the references, with the number of cases that each decided if there are several."""
        main = f"{self.reference} {self.reference_version}"
        counts = Counter(case.reference or main for case in self.cases if not case.skipped)
        if set(counts) <= {main}:
            return main
        return " and ".join(f"{name} (on {count})" for name, count in counts.most_common())
