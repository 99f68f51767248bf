"""Schedule one function: immediately from hardware parameters, or by measuring.

The two calls of the RFC "Auto-Schedule from Compute Declaration" (apache/tvm#2954).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final

import tvm
from pydantic import JsonValue

from autopipe.api.compute import Compute
from autopipe.api.hardware import build_conditions, fill_target, to_target, validate_section
from autopipe.api.scheduled import (
    Scheduled,
    apply_saved_schedule,
    build_single_task,
    name_engine,
    prepare_function,
)
from autopipe.artifacts.tuning import ContenderResult
from autopipe.compiler.graph import elementary
from autopipe.compiler.labels.op_info import annotate_workload
from autopipe.compiler.library import kernels
from autopipe.compiler.loops.exact_divisions import protect_module_divisions
from autopipe.compiler.module_io import save_module
from autopipe.compiler.tvm_probe import examine_tvm
from autopipe.config.schedules import Rule, Schedules
from autopipe.config.target import Target
from autopipe.config.tuning import Tuning
from autopipe.environment.environment import Host
from autopipe.environment.facet import Facet
from autopipe.errors import ConfigError, ModelError
from autopipe.pipeline.events import Emit
from autopipe.pipeline.isolate import Late, Zygote
from autopipe.schedules.engines.fallback import choose_fallback
from autopipe.schedules.engines.loops import as_declared
from autopipe.stages import PRELOADED
from autopipe.store.store import Store, find_records, open_store
from autopipe.tasks.op_info import OpInfo
from autopipe.tuning.partial_result import recover_outcome
from autopipe.tuning.trials import LATE

_TUNE: Final = "autopipe.tuning.alone:tune_workload"
_ANY: Final = 10_000_000
"""Number of trials where only the time is limited."""

_FACETS: Final = (Facet.TVM, Facet.TARGET, Facet.DEVICE)


def auto_schedule(  # noqa: PLR0913 - one for each way in which a search may be limited
    compute: Compute,
    *,
    target: Target | Mapping[str, JsonValue] | None = None,
    trials: int | None = None,
    seconds: float | None = None,
    engines: Sequence[str] = ("autotvm", "ansor"),
    info: Mapping[str, JsonValue] | None = None,
    seed: int = 0,
    fast_algorithms: bool = True,
    store: Path | str | None = None,
    emit: Emit = lambda _: None,
) -> Scheduled:
    """Schedule a function: immediately, or with a budget by the fastest measured candidate.

    `compute` is a PrimFunc, a module with one, or TE tensors: inputs, then results. All shapes are
    static. `target` is a result of `hardware`, or section `target` of a pipeline file; None is
    this machine. Without `trials` and `seconds` nothing is measured and no process is started:
    templates are filled from the hardware parameters. With them, candidates are built and timed in
    child processes until the trials are spent; the winner is checked. After `seconds` this call
    returns the fastest checked candidate, or the unmeasured schedule if none was checked in time.
    `info` is the op information of `autopipe tasks --json`, None that of the PrimFunc. `store` is
    a folder that keeps measurements for later calls; without one they are deleted.

    Raises ConfigError for an invalid option, ModelError for a function that cannot be scheduled,
    TargetError where nothing can be timed, StageError if no candidate could be measured,
    SetupError and StoreError.
    """
    start = monotonic()
    goal = to_target(target)
    if store is not None and not isinstance(store, str | Path):
        raise ConfigError(f"store: not a folder: {store!r}")
    loops = prepare_function(compute, goal, fast_algorithms=fast_algorithms)
    if info is not None:
        loops = annotate_workload(loops, validate_section(OpInfo, info, info="info"))
    request = _build_request(trials, seconds, seed, engines)
    if trials is None and seconds is None:
        return _schedule_at_once(loops, goal, fast_algorithms=fast_algorithms)
    request["fast_algorithms"] = fast_algorithms
    at_once = _schedule_at_once(loops, goal, fast_algorithms=fast_algorithms)
    end = math.inf if seconds is None else start + seconds - _estimate_return_seconds(seconds)
    with _open_or_make_store(store) as opened_store:
        answer = _tune_in_child(loops, goal, request, opened_store, emit, end)
    return _to_scheduled(answer, at_once, loops, fast_algorithms=fast_algorithms)


def _to_scheduled(
    answer: dict[str, Any], at_once: Scheduled, loops: tvm.IRModule, *, fast_algorithms: bool
) -> Scheduled:
    """Return the result of a search, or the unmeasured schedule if the search has none.

    `at_once` was made before the search, as the first schedule of a process takes longest.
    """
    if "schedule" not in answer:
        return replace(at_once, ended=str(answer["ended"]))
    contenders = tuple(ContenderResult(**contender) for contender in answer.pop("contenders"))
    return apply_saved_schedule(
        loops, target=at_once.target, contenders=contenders, fast_algorithms=fast_algorithms,
        **answer,
    )  # fmt: skip


def _estimate_return_seconds(seconds: float) -> float:
    """Return the seconds before the deadline at which child processes are ended.

    The winner is scheduled once more in this process.
    """
    return 0.2 + 0.04 * seconds


def _build_request(
    trials: int | None, seconds: float | None, seed: int, engines: Sequence[str]
) -> dict[str, object]:
    """Build the request for the tuning process. Raises ConfigError."""
    names = (engines,) if isinstance(engines, str) else tuple(engines)
    limits, rule = (
        _build_tuning_section(trials, seconds, seed),
        validate_section(Rule, {"engines": names}),
    )
    return {"tuning": limits.model_dump_json(), "rule": rule.model_dump_json()}


def _build_tuning_section(trials: int | None, seconds: float | None, seed: int) -> Tuning:
    """Build section `tuning` of a pipeline file. Raises ConfigError."""
    budget = {"trials": _ANY if trials is None else trials, "time": seconds}
    return validate_section(
        Tuning, {"budget": budget, "seed": seed, "measure": {"clock": "loop"}},  # in no model
        trials="budget.trials", seconds="budget.time",
    )  # fmt: skip


def _schedule_at_once(loops: tvm.IRModule, target: Target, *, fast_algorithms: bool) -> Scheduled:
    """Schedule without measuring, in this process. Raises ModelError where a GPU cannot run it."""
    goal = fill_target(target)
    for_what = build_conditions(goal, fast_algorithms=fast_algorithms)
    fallback = choose_fallback(Schedules().fallback, loops, for_what)
    planned_schedule = fallback.planned or as_declared(loops)
    if not for_what.hardware.backend.runs_unscheduled_loops:
        why = kernels.find_kernel_refusal(planned_schedule.module, for_what.target)
        if why is not None:
            kind = for_what.hardware.backend.kind
            raise ModelError(f"no schedule makes a kernel for {kind} of it: {why}; pass kind llvm")
    return Scheduled(
        workload=loops,
        module=protect_module_divisions(elementary.expand_functions(planned_schedule.module)),
        engine=name_engine(fallback.engine, loops, planned_schedule.module),
        implementation=planned_schedule.implementation, schedule=planned_schedule.schedule,
        target=goal, fast_algorithms=fast_algorithms, flops=build_single_task(loops).flops,
    )  # fmt: skip


def _tune_in_child(  # noqa: PLR0913, PLR0917 - what a child process needs
    loops: tvm.IRModule,
    target: Target,
    request: Mapping[str, object],
    store: Store,
    emit: Emit,
    end: float,
) -> dict[str, Any]:
    """Tune `main` of a module in a child process; at the `end`, recover its intermediate result."""
    log = store.root / "logs" / "auto_schedule.log"
    folder = store.out()
    save_module(loops, folder / "module.json")
    places = {"folder": str(folder), "records": str(find_records(store.root))}
    argument: dict[str, object] = {**request, **places}
    with Zygote(PRELOADED, store.tmp) as zygote:
        try:
            facts = Host(
                target, store, lambda: _examine_tvm(zygote, log, _count_seconds_left(end))
            ).facts(_FACETS)
            argument["facts"] = {facet.value: dict(values) for facet, values in facts.items()}
            argument["seconds"] = _count_seconds_left(end)
            answer: Mapping[str, Any] | None
            answer = zygote.call(_TUNE, argument, log, emit, _count_seconds_left(end))
        except Late:
            answer = recover_outcome(argument) if "facts" in argument else None
    return dict(answer or {"ended": LATE})


def _count_seconds_left(end: float) -> float | None:
    """Return the seconds until `end`, or None if it is infinite."""
    return None if math.isinf(end) else max(0.0, end - monotonic())


@contextmanager
def _open_or_make_store(folder: Path | str | None) -> Iterator[Store]:
    """Open a store in a folder, or a temporary one without a folder."""
    if folder is not None:
        with open_store(Path(folder)) as store:
            yield store
        return
    with TemporaryDirectory(prefix="autopipe-") as passing, open_store(Path(passing)) as store:
        yield store


def _examine_tvm(zygote: Zygote, log: Path, seconds: float | None) -> Mapping[str, str]:
    return zygote.call(examine_tvm, {}, log, lambda _: None, seconds)
