"""Makes implementations and schedules of workloads where that can do no harm: in a child process.

Templates, implementations and TVM's primitives are code that may crash, hang or take all memory,
and other packages bring some of it. What fails does so twice, and is not tried a third time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import tvm

from autopipe.compiler import module_io
from autopipe.config.problem import format_value
from autopipe.errors import StageError
from autopipe.processes.contained import Child, Failed
from autopipe.processes.failure import Failure, How
from autopipe.safety.failures import Failures, KnownFailure
from autopipe.safety.job import Piece, do
from autopipe.schedules.implementations.implementation import DIRECT, list_allowed_names
from autopipe.schedules.planned import Planned
from autopipe.schedules.policy import Contender


@dataclass(frozen=True, slots=True)
class Made:
    """An implementation of a workload."""

    module: tvm.IRModule
    gain: float
    """How many times faster than `direct` it is estimated to be."""


class Refused(StageError):  # noqa: N818 - says what happened
    """A record makes no schedule here: it is of another release, or an extension is missing."""

    def __init__(self, reason: str, *, harmful: bool = False) -> None:
        """Take why; a `harmful` one may have been made to have something else done."""
        super().__init__(reason)
        self.harmful = harmful


class Maker:
    """Makes what tasks are tuned and built with; tasks go by their names."""

    def __init__(self, workloads: Mapping[str, tvm.IRModule], failures: Failures) -> None:
        """Take the workload of each task, and who keeps what fails."""
        self._workloads = workloads
        self._conditions = failures.conditions
        self._failures = failures
        self._failed: dict[tuple[str, ...], Failed] = {}
        self._told: set[tuple[str, ...]] = set()
        self._made: dict[str, dict[str, Made]] = {}
        self._child = Child(lambda: self._answer_request)

    def implementations(self, task: str) -> dict[str, tvm.IRModule]:
        """Return every implementation of a task, by name, `direct` first."""
        return {name: made.module for name, made in self._list_implementations(task).items()}

    def plans(self, task: str, engine: str) -> Iterator[Planned]:
        """Yield the schedules of a fallback, the most promising first."""
        every = self._list_implementations(task) if engine == "static" else {}
        ranked = sorted(every, key=lambda name: -every[name].gain)
        for name in ranked or (DIRECT,):
            found = self._make_or_none(task, "planning", Contender(engine, name))
            if found and found["planned"]:
                implementation, schedule, module = found["planned"]
                yield Planned(implementation, schedule, module_io.parse_json(module))

    def replay(self, task: str, by: Contender, schedule: str) -> tvm.IRModule:
        """Return the module that a record makes.

        Raises Refused if it does not fit, and Failed if making it fails.
        """
        found = self._ask_child((task, "replaying", *by, schedule))
        if "refused" in found:
            raise Refused(found["refused"], harmful=found["harmful"])
        return module_io.parse_json(found["module"])

    def left_out(self, task: str, by: Contender, error: StageError) -> None:
        """Warn of a record that nobody would have written for a schedule's sake."""
        if isinstance(error, Refused) and error.harmful:
            who = f"{format_value(by.engine)} on {format_value(by.implementation)}"
            self._failures.warn(f"task {task}: a record of {who} is left out: {error}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()

    def _list_implementations(self, task: str) -> dict[str, Made]:
        if task not in self._made:
            found = {DIRECT: Made(self._workloads[task], 1.0)}
            for name in list_allowed_names(self._conditions):
                made = self._make_or_none(task, "rewriting", Contender("", name))
                if made is not None:
                    found[name] = Made(module_io.parse_json(made["module"]), made["gain"])
            self._made[task] = found
        return self._made[task]

    def _make_or_none(self, task: str, doing: str, by: Contender) -> Any:  # noqa: ANN401 - JSON
        """Return what was made, or None if there is nothing of it, or it failed."""
        try:
            return self._ask_child((task, doing, *by, ""))
        except Failed:
            return None

    def _ask_child(self, request: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
        if request in self._failed:
            raise self._failed[request]
        piece = self._build_piece(*request)
        try:
            ask = self._child.ask if self._failures.suspect(piece) else self._child.twice
            found = ask(request)
            if _read_complaint(found):
                found = self._child.twice(request)
        except Failed as error:
            self._failed[request] = error
            if not isinstance(error, KnownFailure):
                self._failures.add(piece, error)
            raise
        self._failures.passed(piece)
        if _read_complaint(found) and request not in self._told:
            self._told.add(request)
            raised = Failed(Failure(How.RAISED, _read_complaint(found)))
            self._failures.add(piece, raised, remembered=False)
        return found

    def _answer_request(self, request: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
        return do(self._build_piece(*request), self._conditions)

    def _build_piece(
        self, task: str, doing: str, engine: str, implementation: str, schedule: str
    ) -> Piece:
        return Piece(doing, task, self._workloads[task], engine, implementation, schedule)


def _read_complaint(found: Mapping[str, Any] | None) -> str:
    """Return what templates raised, for which another one may have made a schedule."""
    return str((found or {}).get("complaint", ""))
