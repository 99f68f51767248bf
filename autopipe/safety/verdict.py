"""The result of the check of a schedule, and the verdict that is stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

_TYPES: Final = {
    "right": bool | None, "reason": str | None, "folder": str | None, "failed": bool,
}  # fmt: skip
"""Fields of a verdict file."""


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

    def document(self) -> dict[str, object]:
        """Serialize the verdict for its file."""
        right = None if self.finding is Finding.UNCHECKED else self.finding is Finding.RIGHT
        is_failure = self.finding is Finding.FAILED
        return {"right": right, "reason": self.reason, "folder": self.folder, "failed": is_failure}

    @classmethod
    def read(cls, document: Mapping[str, object]) -> Self:
        """Parse a verdict file, which is not trusted. Raises ValueError if it is no verdict.

        Fields other than `right` may be missing: they are null, or false.
        """
        fields: dict[str, Any] = {"reason": None, "folder": None, "failed": False, **document}
        if fields.keys() != _TYPES.keys() or not all(
            isinstance(fields[name], kind) for name, kind in _TYPES.items()
        ):
            raise ValueError("no verdict")
        if fields["right"] is None:
            finding = Finding.UNCHECKED
        elif fields["right"]:
            finding = Finding.RIGHT
        else:
            finding = Finding.FAILED if fields["failed"] else Finding.WRONG
        return cls(finding, fields["reason"], fields["folder"])
