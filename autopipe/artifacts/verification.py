"""`verify.json`: the report of the stage *verify*."""

from collections import Counter
from enum import StrEnum
from typing import ClassVar

from autopipe.artifacts.document import ArtifactDocument, Part
from autopipe.config.dimension import append_sizes


class Tolerance(Part, frozen=True):
    """The allowed error of an element: `atol + rtol * |reference|`."""

    rtol: float
    """Relative to the element of the reference."""
    atol: float
    """Absolute."""


class OutputComparison(Part, frozen=True):
    """The comparison of one output on one case."""

    output: str
    """Name of the output."""
    tolerance: Tolerance
    """The tolerance."""
    failure: str | None = None
    """Why it fails; null if it passes."""
    max_abs: float | None = None
    """Largest absolute error; null if it cannot be computed."""
    max_rel: float | None = None
    """Largest relative error over elements whose reference is not zero."""
    used: float | None = None
    """Largest share of the tolerance that an element uses; above 1 it fails."""
    first_bad: tuple[int, ...] | None = None
    """Index of the first element that fails."""
    elsewhere: int | None = None
    """Number of rows that differ or are in another order, if those of the reference also change
    under perturbed inputs; null if all rows were compared in order."""
    undetermined: float | None = None
    """Relative change of the reference under inputs perturbed by a rounding, if that makes this
    output noise: then only its magnitude is compared; null otherwise."""
    enough_atol: float | None = None
    """The `atol` that would pass with this rtol; null if no allowed value would."""
    enough_rtol: float | None = None
    """The `rtol` that would pass with this atol; null if no allowed value would."""


class CaseOutcome(StrEnum):
    """The outcome of a case."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """The reference is not finite on it, or refuses it."""


class CheckedCase(Part, frozen=True):
    """One case, and the comparison of each output on it."""

    name: str
    """Name of the case."""
    sizes: dict[str, int] = {}
    """The size of each dynamic dimension."""
    generic: bool = False
    """Whether the library for every size ran it, although there is a specialized one."""
    skipped: bool
    """An edge case outside the model's domain: the reference is not finite on it, or refuses it."""
    crashed: bool = False
    """Whether the build crashed on it."""
    reference: str | None = None
    """The reference of this case, if it is not the first: the first one refuses the case, or
    contradicts this one, with which the build agrees."""
    seconds: float | None = None
    """Time to run the build on it and to compare the outputs; null if unknown."""
    outputs: tuple[OutputComparison, ...]
    """The outputs, in order; none if the case was skipped."""

    @property
    def label(self) -> str:
        """Format its name and sizes."""
        where = " in the library for every size" if self.generic else ""
        return append_sizes(f"case {self.name!r}", self.sizes) + where

    @property
    def outcome(self) -> CaseOutcome:
        """Whether the build passed it."""
        if self.skipped:
            return CaseOutcome.SKIPPED
        has_failed = any(output.failure for output in self.outputs)
        return CaseOutcome.FAILED if has_failed else CaseOutcome.PASSED


class Verification(ArtifactDocument, frozen=True):
    """The comparison of a build with a reference."""

    FILE: ClassVar[str] = "verify.json"

    reference: str
    """The runtime that computed the expected outputs."""
    reference_version: str
    """Its version."""
    cases: tuple[CheckedCase, ...]
    """All ordinary and edge cases, in order."""
    special: tuple[CheckedCase, ...] = ()
    """Cases with infinities, NaN, or the smallest and largest numbers; a build may fail one whose
    operators are not defined for such numbers."""
    warnings: tuple[str, ...]
    """Why parts of the comparison are inconclusive."""
    rounded_by: float | None = None
    """Maximum relative error of an output due to bfloat16: the norm of the difference divided by
    that of the output. Null without bfloat16."""
    failure: str | None = None
    """Why the build fails; null if it passes. Later batches of cases are omitted."""

    @property
    def sizes(self) -> int:
        """Return the number of compared sizes; 0 with static shapes."""
        return len({tuple(case.sizes.items()) for case in self.cases if case.sizes})

    @property
    def binding(self) -> tuple[CheckedCase, ...]:
        """Return the deciding cases; special ones are known to decide only if one fails."""
        return (*self.cases, *self.special) if self.failure else self.cases

    @property
    def extent(self) -> str:
        """Format the numbers of compared cases and, with dynamic shapes, of sizes."""
        cases = f"{sum(not case.skipped for case in self.cases)} cases"
        return f"{cases} at {self.sizes} sizes" if self.sizes else cases

    def summary(self) -> str:
        """Format a summary of one line."""
        if self.failure is not None:
            return self.failure
        used_shares = [output.used or 0.0 for case in self.cases for output in case.outputs]
        return (
            f"equal to {self._format_references()} on {self.extent}, "
            f"{max(used_shares):.2%} of the allowed error used"
        ) + ("" if self.rounded_by is None else f"; {self.rounded_by:.2%} off by bfloat16")

    def _format_references(self) -> str:
        """List the references, with the number of cases of each if there are several."""
        main = f"{self.reference} {self.reference_version}"
        counts = Counter(case.reference or main for case in self.cases if not case.skipped)
        if set(counts) <= {main}:
            return main
        return " and ".join(f"{name} (on {count})" for name, count in counts.most_common())
