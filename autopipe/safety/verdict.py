"""What the check of a schedule has found, and what follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

_TYPES: Final = {
    "right": bool | None, "reason": str | None, "folder": str | None, "failed": bool,
}  # fmt: skip
"""What a file has."""


class Finding(StrEnum):
    """What is known of a schedule."""

    RIGHT = "right"
    """It computes what its workload computes."""
    WRONG = "wrong"
    """It computes something else, or can not be compiled."""
    FAILED = "failed"
    """It is not wrong, but crashed, hung or took too much memory, twice."""
    UNCHECKED = "unchecked"
    """The check could not be made."""
    BROKEN = "broken"
    """Its workload itself reads or writes what is not its own."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check job answers."""

    finding: Finding
    reason: str | None = None
    """Why it is wrong, or was not checked."""
    case: str | None = None
    """The inputs on which it is wrong, a name of `measure.cases`; null where it does not run."""
    difference: str | None = None
    """How far it is off there, as a number of two digits."""

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """Take what came from the child that made it. Raises ValueError, TypeError."""
        return cls(**{**answer, "finding": Finding(answer["finding"])})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found of a schedule, and where that can be seen."""

    finding: Finding
    reason: str | None = None
    """Why it is wrong, failed, or was not checked."""
    folder: str | None = None
    """Where a schedule is kept that is wrong or failed."""

    @property
    def condemns(self) -> bool:
        """Whether another schedule has to take its place."""
        return self.finding in {Finding.WRONG, Finding.FAILED}

    def document(self) -> dict[str, object]:
        """Return it as it is kept in a file."""
        right = None if self.finding is Finding.UNCHECKED else self.finding is Finding.RIGHT
        failed = self.finding is Finding.FAILED
        return {"right": right, "reason": self.reason, "folder": self.folder, "failed": failed}

    @classmethod
    def read(cls, document: Mapping[str, object]) -> Self:
        """Take what a file says, which may be anything. Raises ValueError for what is no verdict.

        What it leaves out besides `right` is null, or false.
        """
        said: dict[str, Any] = {"reason": None, "folder": None, "failed": False, **document}
        if said.keys() != _TYPES.keys() or not all(
            isinstance(said[name], kind) for name, kind in _TYPES.items()
        ):
            raise ValueError("no verdict")
        if said["right"] is None:
            finding = Finding.UNCHECKED
        elif said["right"]:
            finding = Finding.RIGHT
        else:
            finding = Finding.FAILED if said["failed"] else Finding.WRONG
        return cls(finding, said["reason"], said["folder"])
