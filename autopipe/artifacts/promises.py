"""What a model promises of its outputs, as its frontend derives it from the operators.

Two correct builds of a model may differ: a sigmoid is rounded as a number up to 1, a quantized
value may fall on either side of a step, and no order of additions is defined. *import* writes down
what that means for the outputs, so that *verify* knows no operators.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from autopipe.artifacts.document import Part

SpecialCase = Literal["tiny", "huge", "infinite", "nan", "signed"]
"""Cases with numbers that most models never see, by the names that *verify* draws them under."""

NAN: Final = "nan"
"""The special case with NaN."""

COMMON_CASES: Final[tuple[SpecialCase, ...]] = ("tiny", "signed")
"""Special cases on which nearly all operators are defined."""

SPECIAL_CASES: Final[tuple[SpecialCase, ...]] = (*COMMON_CASES, "huge", "infinite", NAN)

_ErrorFloor = Annotated[float, Field(gt=0)]


class OutputPromises(Part, frozen=True):
    """What a build has to reproduce of the reference, and where it may differ.

    The defaults hold for a model whose operators are not known.
    """

    chooses_rows: bool = False
    """Whether the model selects or sorts rows by their values, so that a correct build may select
    others where values are close."""
    rounds_to_steps: bool = False
    """Whether the model quantizes inside, so that a correct build may round to a neighboring
    step."""
    error_floors: dict[str, _ErrorFloor] = {}
    """By output, the absolute error below which a difference proves nothing; 0 for others."""
    exact_cases: tuple[SpecialCase, ...] = ()
    """Special cases on which a build has to equal the reference, infinities and NaN included."""
    finite_cases: tuple[SpecialCase, ...] = COMMON_CASES
    """Special cases on which it has to where all values of the reference are finite."""
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
