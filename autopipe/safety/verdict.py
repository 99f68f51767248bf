"""The result of the check of a schedule, and the verdict that is stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

from pydantic import TypeAdapter


class Finding(StrEnum):
    """The finding on a schedule."""

    RIGHT = "right"
    """Its result agrees with that of its workload."""
    WRONG = "wrong"
    """Its result differs, or it cannot be compiled."""
    FAILED = "failed"
    """It is not wrong, but crashed, hung or took too much memory, twice."""
    UNCHECKED = "unchecked"
    """The check could not be made."""
    BROKEN = "broken"
    """Its workload itself accesses memory out of bounds."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check."""

    finding: Finding
    reason: str | None = None
    """Why the schedule is wrong, or was not checked."""
    case: str | None = None
    """The inputs on which it is wrong, a name of `measure.cases`; None if it does not run."""
    difference: str | None = None
    """The largest error there, as a number of two digits."""

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """Parse the answer of the child that ran the check. Raises ValueError, TypeError."""
        return cls(**{**answer, "finding": Finding(answer["finding"])})


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a schedule, and the folder that reproduces it."""

    finding: Finding
    reason: str | None = None
    """Why it is wrong, failed, or was not checked."""
    folder: str | None = None
    """Quarantine folder of a wrong or failed schedule."""

    @property
    def condemns(self) -> bool:
        """Whether another schedule has to replace it."""
        return self.finding in {Finding.WRONG, Finding.FAILED}

    @classmethod
    def read(cls, document: Mapping[str, object]) -> "Verdict":
        """Parse a verdict file, which is not trusted. Raises ValueError if it is no verdict."""
        return _VERDICT.validate_python(document)


_VERDICT: Final = TypeAdapter(Verdict)
