"""Properties of a model's outputs that its frontend derives from the operators.

Two correct builds of a model may differ: a sigmoid has the rounding error of a number up to 1, a
quantized value may fall on either side of a step, and no order of additions is defined. *import*
writes the consequences for the outputs, so that *verify* needs no knowledge of operators.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from autopipe.artifacts.document import Part

SpecialCase = Literal["tiny", "huge", "infinite", "nan", "signed"]
"""Cases with exceptional numbers, by their names in *verify*."""

NAN: Final = "nan"
"""The special case with NaN."""

COMMON_CASES: Final[tuple[SpecialCase, ...]] = ("tiny", "signed")
"""Special cases on which nearly all operators are defined."""

SPECIAL_CASES: Final[tuple[SpecialCase, ...]] = (*COMMON_CASES, "huge", "infinite", NAN)

_ErrorFloor = Annotated[float, Field(gt=0)]


class OutputPromises(Part, frozen=True):
    """Properties of the reference that a build has to reproduce, and allowed differences.

    The defaults hold for a model whose operators are not known.
    """

    chooses_rows: bool = False
    """Whether the model selects or sorts rows by their values, so that a correct build may select
    others where values are close."""
    rounds_to_steps: bool = False
    """Whether the model quantizes inside, so that a correct build may round to a neighboring
    step."""
    error_floors: dict[str, _ErrorFloor] = {}
    """By output, the absolute error below which differences are ignored; 0 for others."""
    exact_cases: tuple[SpecialCase, ...] = ()
    """Special cases on which a build has to equal the reference, infinities and NaN included."""
    finite_cases: tuple[SpecialCase, ...] = COMMON_CASES
    """Special cases on which it has to if all values of the reference are finite."""
    nan_only_on_cpu: bool = False
    """Whether NaN is propagated by comparisons: instructions of GPUs return the other operand."""
    references_lose_nan: bool = False
    """Whether a reference runtime may drop NaN that the operators are defined to propagate."""

    def binds(self, case: str, *, finite: bool, device: str) -> bool:
        """Return whether a build for a device has to pass a special case.

        `finite` states whether all values of the reference are.
        """
        if case == NAN and self.nan_only_on_cpu and device != "cpu":
            return False
        return case in self.exact_cases or (finite and case in self.finite_cases)

    def needs_strict_nan(self, device: str) -> bool:
        """Return whether a build has to propagate NaN that a reference runtime may drop."""
        return self.references_lose_nan and self.binds(NAN, finite=False, device=device)
