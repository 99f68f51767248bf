"""Pieces of work on one task that may crash, hang or exhaust memory, and their execution.

Each runs in a child process, and can be repeated from its record.
"""

import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import tvm

from autopipe import extensions
from autopipe.compiler.library.call_thread import CallThread
from autopipe.compiler.library.kernel_compiler import use_kernel_compiler
from autopipe.compiler.library.kernel_threads import shorten_spin, use_threads
from autopipe.compiler.target.target import find_host_target
from autopipe.errors import StageError
from autopipe.measure import build, check
from autopipe.measure.library_kernel import LibraryKernel, check_kernel
from autopipe.measure.plain_code import PlainKernel
from autopipe.safety.verdict import Checked, Finding
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines import fallback, static
from autopipe.schedules.engines.engine import MeasuredSchedule, Planned, Problem
from autopipe.schedules.engines.registry import load_engine_makers
from autopipe.schedules.implementations.implementation import (
    DIRECT,
    build_implementation,
    list_allowed,
)
from autopipe.schedules.replay import replay_schedule
from autopipe.schedules.templates.template import AnyTemplate
from autopipe.store.passing import open_temporary_folder
from autopipe.tasks.task import Task
from autopipe.traces.reading import Forbidden


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of work."""

    doing: str
    """The kind of work, a key of `_WAYS`."""
    task: str
    """Name of the task, for messages."""
    workload: tvm.IRModule
    engine: str = ""
    """The engine that does it; empty for rewriting, which only the implementation does."""
    implementation: str = DIRECT
    schedule: str = ""
    """The schedule in the format of `replay_schedule`, if there is one."""
    scheduled: tvm.IRModule | None = None
    """The scheduled module that is checked or compiled."""
    problem: Mapping[str, Any] | None = None
    """The request to a search: task, batch, seed, tuner, and measured schedules."""
    kernel: LibraryKernel | None = None
    """Its kernel in a library, if that is checked."""
    plain: PlainKernel | None = None
    """The plain loops of the workload in a library, if they are compiled."""

    @property
    def candidate(self) -> tvm.IRModule:
        """Return the scheduled function that is checked or compiled."""
        assert self.scheduled is not None  # noqa: S101 - of such pieces only
        return self.scheduled

    @property
    def origin(self) -> str:
        """Name the engine and the implementation, with the package of extensions."""
        implementation = extensions.format_with_owner(
            extensions.IMPLEMENTATIONS, self.implementation
        )
        if not self.engine:
            return implementation
        return (
            f"{extensions.format_with_owner(extensions.ENGINES, self.engine)} on {implementation}"
        )


def do(piece: Piece, conditions: Conditions) -> Any:  # noqa: ANN401 - JSON
    """Execute a piece in this process; return its result as JSON."""
    return _WAYS[piece.doing](piece, conditions)


def can_bound_memory(piece: Piece, conditions: Conditions) -> bool:
    """Return whether the memory of a piece can be limited: not if it runs on a device."""
    return piece.doing != "checking" or conditions.hardware.backend.runs_on_host


def _rewrite_workload(piece: Piece, conditions: Conditions) -> dict[str, Any] | None:
    """Return module and estimated gain of the implementation; None if it does not apply."""
    module = build_implementation(piece.workload, piece.implementation, conditions)
    if module is None:
        return None
    (implementation,) = (
        candidate
        for candidate in list_allowed(conditions)
        if piece.implementation == candidate.NAME
    )
    gain = implementation.gain(piece.workload, conditions.hardware)
    return {"module": tvm.ir.save_json(module), "gain": gain}


def _plan_fallback(piece: Piece, conditions: Conditions) -> dict[str, Any]:
    """Return the schedule of a fallback, if it has one, and the templates that raised errors."""
    complaints: list[str] = []

    def complain(template: AnyTemplate, error: Exception) -> None:
        traceback.print_exception(error)
        template_name = extensions.format_with_owner(extensions.TEMPLATES, template.name)
        reason = " ".join(str(error).split())
        complaints.append(f"template {template_name}: {type(error).__name__}: {reason}")

    plan: Planned | None
    if piece.engine == "static":
        body = build_implementation(piece.workload, piece.implementation, conditions)
        plan = None
        if body is not None:
            plan = static.plan_implementation(piece.implementation, body, conditions, complain)
    else:
        plan = fallback.FALLBACKS[piece.engine](piece.workload, conditions)
    answer: dict[str, Any] = {"planned": None, "complaint": "; ".join(complaints)}
    if plan is not None:
        module = tvm.ir.save_json(plan.module)
        answer["planned"] = (plan.implementation, plan.schedule, module)
    return answer


def _replay_schedule(piece: Piece, conditions: Conditions) -> dict[str, object]:
    """Return the module of a replayed schedule, or why it does not apply."""
    try:
        module = replay_schedule(piece.workload, piece.implementation, piece.schedule, conditions)
    except StageError as error:
        return {"refused": str(error), "harmful": isinstance(error, Forbidden)}
    return {"module": tvm.ir.save_json(module)}


def _propose_schedules(piece: Piece, conditions: Conditions) -> list[str] | None:
    """Return the first proposals of a search, if the engine has any."""
    request = piece.problem or {}
    module = build_implementation(piece.workload, piece.implementation, conditions)
    if module is None:
        return None
    measured_schedules = [
        MeasuredSchedule(schedule, float(seconds)) for schedule, seconds in request["known"]
    ]
    task = Task.model_validate(request["task"])
    problem = Problem(
        task, module, conditions, measured_schedules, request["batch"], request["seed"],
        request["tuner"],
    )  # fmt: skip
    (maker,) = load_engine_makers([piece.engine], conditions).values()
    search = maker().search(problem)
    return None if search is None else search.propose(problem.batch)


def check_plain_loops(piece: Piece, conditions: Conditions) -> dict[str, Any]:
    """Check the workload of a piece against itself on the host processor."""
    workload, host_target = piece.workload, find_host_target(conditions.target)
    return _find_verdict(lambda: check.checked(workload, workload, host_target), conditions)


def _check_schedule(piece: Piece, conditions: Conditions) -> dict[str, Any]:
    """Check a schedule against its workload; return a `Checked` as JSON."""
    workload, candidate, target = piece.workload, piece.candidate, conditions.target

    def check_piece() -> None:
        in_library = piece.kernel is not None and check_kernel(
            workload, candidate, piece.kernel, target, piece.plain
        )
        if not in_library:
            check.checked(workload, candidate, target, piece.plain)

    return _find_verdict(check_piece, conditions)


def _find_verdict(check_made: Callable[[], object], conditions: Conditions) -> dict[str, Any]:
    """Run a check, whose kernels use all cores, and return its verdict.

    It runs in a new thread: TVM keeps a pool of workers for each thread, and this forked process
    lacks the workers of the thread that was forked.
    """
    shorten_spin()
    thread = CallThread(lambda: use_threads(conditions.hardware.cores))
    try:
        return asdict(thread.run(lambda: compute_verdict(check_made)))
    finally:
        thread.end()


def compute_verdict(check_made: Callable[[], object]) -> Checked:
    """Convert the exceptions of `check.checked` to a verdict."""
    try:
        check_made()
    except check.WrongAnswer as error:
        return Checked(Finding.WRONG, str(error), error.case, error.difference)
    except check.NotChecked as error:
        return Checked(Finding.UNCHECKED, f"{type(error).__name__}: {error}")
    except check.Unsteady as error:
        return Checked(Finding.BROKEN, str(error))
    return Checked(Finding.RIGHT)


def _compile_schedule(piece: Piece, conditions: Conditions) -> None:
    """Generate machine code without running it: it may be for another machine."""
    with use_kernel_compiler(conditions.target), open_temporary_folder() as folder:
        library = build.compile_module(build.without_weights(piece.candidate), conditions.target)
        library.write_to_file(str(folder / "alone.o"), "o")


_WAYS: Final[Mapping[str, Callable[[Piece, Conditions], Any]]] = {
    "rewriting": _rewrite_workload,
    "planning": _plan_fallback,
    "replaying": _replay_schedule,
    "searching": _propose_schedules,
    "checking": _check_schedule,
    "compiling": _compile_schedule,
}
