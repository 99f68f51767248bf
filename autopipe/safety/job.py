"""The pieces of work on one task that may crash, hang or take all memory, and how each is done.

Each is done in a child process, and can be done again from what is written down of it.
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
from autopipe.schedules.engines.engine import MeasuredSchedule, Problem
from autopipe.schedules.engines.registry import load_engine_makers
from autopipe.schedules.implementations.implementation import (
    DIRECT,
    build_implementation,
    list_allowed,
)
from autopipe.schedules.planned import Planned
from autopipe.schedules.replay import replay_schedule
from autopipe.schedules.templates.template import AnyTemplate
from autopipe.store.passing import open_temporary_folder
from autopipe.tasks.task import Task
from autopipe.traces.reading import Forbidden


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of work."""

    doing: str
    """What is done, a key of `_WAYS`."""
    task: str
    """Name of the task; for people."""
    workload: tvm.IRModule
    engine: str = ""
    """Who does it; nobody rewrites a workload but the implementation."""
    implementation: str = DIRECT
    schedule: str = ""
    """As `replay_schedule` reads it, where there is one already."""
    scheduled: tvm.IRModule | None = None
    """What is checked or compiled."""
    problem: Mapping[str, Any] | None = None
    """What was asked of a search: its task, batch, seed and tuner, and what was known."""
    kernel: LibraryKernel | None = None
    """The kernel of it in a library, where it is checked as that has it."""
    plain: PlainKernel | None = None
    """The plain loops of the workload in a library, where they are compiled already."""

    @property
    def candidate(self) -> tvm.IRModule:
        """Return the scheduled function that is checked or compiled."""
        assert self.scheduled is not None  # noqa: S101 - of such pieces only
        return self.scheduled

    @property
    def who(self) -> str:
        """Name the engine and the implementation, and the package of each that is not ours."""
        implementation = extensions.format_with_owner(
            extensions.IMPLEMENTATIONS, self.implementation
        )
        if not self.engine:
            return implementation
        return (
            f"{extensions.format_with_owner(extensions.ENGINES, self.engine)} on {implementation}"
        )


def do(piece: Piece, conditions: Conditions) -> Any:  # noqa: ANN401 - JSON
    """Do it here and return the result, which each way describes, as JSON."""
    return _WAYS[piece.doing](piece, conditions)


def can_bound_memory(piece: Piece, conditions: Conditions) -> bool:
    """Tell whether the memory it takes can be bounded: not where it runs on a device."""
    return piece.doing != "checking" or conditions.hardware.backend.runs_on_host


def _rewrite_workload(piece: Piece, conditions: Conditions) -> dict[str, Any] | None:
    """Return the module of the implementation and how much it promises, if it serves the task."""
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
    """Return the schedule of a fallback, if it has one, and which templates raised something."""
    complaints: list[str] = []

    def complain(template: AnyTemplate, error: Exception) -> None:
        traceback.print_exception(error)
        named = extensions.format_with_owner(extensions.TEMPLATES, template.name)
        reason = " ".join(str(error).split())
        complaints.append(f"template {named}: {type(error).__name__}: {reason}")

    planned: Planned | None
    if piece.engine == "static":
        body = build_implementation(piece.workload, piece.implementation, conditions)
        planned = None
        if body is not None:
            planned = static.plan_implementation(piece.implementation, body, conditions, complain)
    else:
        planned = fallback.FALLBACKS[piece.engine](piece.workload, conditions)
    found: dict[str, Any] = {"planned": None, "complaint": "; ".join(complaints)}
    if planned is not None:
        module = tvm.ir.save_json(planned.module)
        found["planned"] = (planned.implementation, planned.schedule, module)
    return found


def _replay_schedule(piece: Piece, conditions: Conditions) -> dict[str, object]:
    """Return the module that a schedule makes, or why it does not fit."""
    try:
        made = replay_schedule(piece.workload, piece.implementation, piece.schedule, conditions)
    except StageError as error:
        return {"refused": str(error), "harmful": isinstance(error, Forbidden)}
    return {"module": tvm.ir.save_json(made)}


def _propose_schedules(piece: Piece, conditions: Conditions) -> list[str] | None:
    """Return the first proposals of a search, if the engine has any."""
    asked = piece.problem or {}
    module = build_implementation(piece.workload, piece.implementation, conditions)
    if module is None:
        return None
    known = [MeasuredSchedule(schedule, float(seconds)) for schedule, seconds in asked["known"]]
    task = Task.model_validate(asked["task"])
    problem = Problem(
        task, module, conditions, known, asked["batch"], asked["seed"], asked["tuner"]
    )  # fmt: skip
    (maker,) = load_engine_makers([piece.engine], conditions).values()
    search = maker().search(problem)
    return None if search is None else search.propose(problem.batch)


def check_plain_loops(piece: Piece, conditions: Conditions) -> dict[str, Any]:
    """Check the workload of a piece against itself, on the processor, as a check is done."""
    workload, here = piece.workload, find_host_target(conditions.target)
    return _find_verdict(lambda: check.checked(workload, workload, here), conditions)


def _check_schedule(piece: Piece, conditions: Conditions) -> dict[str, Any]:
    """Return what is wrong with a schedule, or why that can not be said, as `Checked`."""
    workload, scheduled, target = piece.workload, piece.candidate, conditions.target

    def check_piece() -> None:
        in_library = piece.kernel is not None and check_kernel(
            workload, scheduled, piece.kernel, target, piece.plain
        )
        if not in_library:
            check.checked(workload, scheduled, target, piece.plain)

    return _find_verdict(check_piece, conditions)


def _find_verdict(check_made: Callable[[], object], conditions: Conditions) -> dict[str, Any]:
    """Return the verdict of a check, which runs kernels on all cores.

    It is made in a new thread: TVM keeps a pool of workers for each thread, and the fork that this
    process is has none of the workers that the thread had which was forked.
    """
    shorten_spin()
    thread = CallThread(lambda: use_threads(conditions.hardware.cores))
    try:
        return asdict(thread.run(lambda: compute_verdict(check_made)))
    finally:
        thread.end()


def compute_verdict(check_made: Callable[[], object]) -> Checked:
    """Return what a check finds, which raises what `check.checked` does."""
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
    """Make machine code, which is not run: it may be for another machine."""
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
