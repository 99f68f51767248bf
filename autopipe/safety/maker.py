"""Builds implementations and schedules of workloads in a child process.

Templates, implementations and TVM's primitives are code that may crash, hang or exhaust memory, and
some of it is from other packages. A failure is repeated once, and not tried a third time.
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
from autopipe.schedules.engines.engine import Planned
from autopipe.schedules.implementations.implementation import DIRECT, list_allowed_names
from autopipe.schedules.policy import Contender


@dataclass(frozen=True, slots=True)
class Made:
    """An implementation of a workload."""

    module: tvm.IRModule
    gain: float
    """Estimated speedup over `direct`."""


class Refused(StageError):  # noqa: N818 - says what happened
    """A record cannot be replayed: it is of another release, or an extension is missing."""

    def __init__(self, reason: str, *, harmful: bool = False) -> None:
        """Store the reason; `harmful` marks instructions that no schedule needs."""
        super().__init__(reason)
        self.harmful = harmful


class Maker:
    """Builds the implementations and schedules of tasks, which are identified by name."""

    def __init__(self, workloads: Mapping[str, tvm.IRModule], failures: Failures) -> None:
        """Set the workload of each task, and the register of failures."""
        self._workloads = workloads
        self._conditions = failures.conditions
        self._failures = failures
        self._failed: dict[tuple[str, ...], Failed] = {}
        self._reported: set[tuple[str, ...]] = set()
        self._made: dict[str, dict[str, Made]] = {}
        self._child = Child(lambda: self._answer_request)

    def implementations(self, task: str) -> dict[str, tvm.IRModule]:
        """Return every implementation of a task, by name, `direct` first."""
        return {name: made.module for name, made in self._list_implementations(task).items()}

    def plans(self, task: str, engine: str) -> Iterator[Planned]:
        """Yield the schedules of a fallback, the most promising first."""
        implementations = self._list_implementations(task) if engine == "static" else {}
        ranked_names = sorted(implementations, key=lambda name: -implementations[name].gain)
        for name in ranked_names or (DIRECT,):
            answer = self._make_or_none(task, "planning", Contender(engine, name))
            if answer and answer["planned"]:
                implementation, schedule, module = answer["planned"]
                yield Planned(implementation, schedule, module_io.parse_json(module))

    def replay(self, task: str, by: Contender, schedule: str) -> tvm.IRModule:
        """Return the module of a replayed record.

        Raises Refused if it does not apply, and Failed if the replay fails.
        """
        answer = self._ask_child((task, "replaying", *by, schedule))
        if "refused" in answer:
            raise Refused(answer["refused"], harmful=answer["harmful"])
        return module_io.parse_json(answer["module"])

    def left_out(self, task: str, by: Contender, error: StageError) -> None:
        """Warn of a record that was omitted because it has forbidden instructions."""
        if isinstance(error, Refused) and error.harmful:
            origin = f"{format_value(by.engine)} on {format_value(by.implementation)}"
            self._failures.warn(f"task {task}: a record of {origin} is left out: {error}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()

    def _list_implementations(self, task: str) -> dict[str, Made]:
        if task not in self._made:
            implementations = {DIRECT: Made(self._workloads[task], 1.0)}
            for name in list_allowed_names(self._conditions):
                answer = self._make_or_none(task, "rewriting", Contender("", name))
                if answer is not None:
                    implementations[name] = Made(
                        module_io.parse_json(answer["module"]), answer["gain"]
                    )
            self._made[task] = implementations
        return self._made[task]

    def _make_or_none(self, task: str, doing: str, by: Contender) -> Any:  # noqa: ANN401 - JSON
        """Return the answer of the child; None if there is no result, or it failed."""
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
            answer = ask(request)
            if _read_complaint(answer):
                answer = self._child.twice(request)
        except Failed as error:
            self._failed[request] = error
            if not isinstance(error, KnownFailure):
                self._failures.add(piece, error)
            raise
        self._failures.passed(piece)
        if _read_complaint(answer) and request not in self._reported:
            self._reported.add(request)
            failure = Failed(Failure(How.RAISED, _read_complaint(answer)))
            self._failures.add(piece, failure, remembered=False)
        return answer

    def _answer_request(self, request: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
        return do(self._build_piece(*request), self._conditions)

    def _build_piece(
        self, task: str, doing: str, engine: str, implementation: str, schedule: str
    ) -> Piece:
        return Piece(doing, task, self._workloads[task], engine, implementation, schedule)


def _read_complaint(answer: Mapping[str, Any] | None) -> str:
    """Return the errors of templates that were skipped in favour of another one."""
    return str((answer or {}).get("complaint", ""))
