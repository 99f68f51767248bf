"""Run and plan pipeline files: the functions behind `autopipe run`, `plan` and `tasks`."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from autopipe.api import cross
from autopipe.api.builds import wire_stages
from autopipe.api.next_step import name_bisect
from autopipe.api.publish import publish_package
from autopipe.compiler.tvm_probe import examine_tvm
from autopipe.config.load import load
from autopipe.config.pipeline import Pipeline
from autopipe.environment.environment import Environment, Host, Stack, describe_tvm_misfit
from autopipe.environment.facet import Facet
from autopipe.environment.toolchain import is_foreign
from autopipe.errors import ConfigError, SetupError, StoreError
from autopipe.host import refusal
from autopipe.host.memory import describe_memory_limit, read_address_limit
from autopipe.host.refusal import OUT_OF_MEMORY
from autopipe.lock.locking import Locking, begin
from autopipe.lock.mode import Mode, check_mode
from autopipe.pipeline.counted import Watch
from autopipe.pipeline.events import Emit, Event, RunFinished, Warn
from autopipe.pipeline.forecast import Outlook, forecast
from autopipe.pipeline.history import History
from autopipe.pipeline.isolate import Bug, Killed, Zygote
from autopipe.pipeline.plan import Plan, build_plan
from autopipe.pipeline.stage import NO_DIAGNOSTICS, Diagnostics
from autopipe.processes.interrupt import find_exit_code
from autopipe.report.wording import describe_error
from autopipe.stages import PRELOADED
from autopipe.store.artifact import Artifact, Kind
from autopipe.store.locks import FOR_EVER, Patience
from autopipe.store.store import Store, find_default_root, open_store

if TYPE_CHECKING:
    from autopipe.pipeline.executor import Executor, Look, Remote
    from autopipe.signing.signers import Signers
    from autopipe.tasks.task import Task

OUTPUT: Final = Path("dist")
"""The default folder of packages."""

_ADDRESSES: Final = 1 << 30
"""Bytes of address space that TVM needs, with a margin."""


class Flow(NamedTuple):
    """The opened store and the plan of a pipeline file, which all commands on one need."""

    pipeline: Pipeline
    plan: Plan
    store: Store
    host: Environment
    isolate: Zygote
    locking: Locking
    history: History
    """The previous runs of the pipeline file."""
    diagnostics: Diagnostics = NO_DIAGNOSTICS


def run(  # noqa: PLR0913 -- one for each option of the command
    file: Path,
    *,
    overrides: Sequence[str] = (),
    store: Path | None = None,
    output: Path = OUTPUT,
    until: str | None = None,
    force: Collection[str] = (),
    mode: Mode = Mode.AUTO,
    lock_timeout: float | None = None,
    reproducible: bool = False,
    signers: "Signers | None" = None,
    build: str | None = None,
    diagnostics: Diagnostics = NO_DIAGNOSTICS,
    emit: Emit = lambda _: None,
) -> dict[str, Artifact]:
    """Run a pipeline file, publish its package, and return the artifact of each stage by name.

    A run with `overrides`, or only `until` a stage, writes no lock. `lock_timeout` is in seconds.
    `reproducible` builds again and compares. The lock needs one of `signers`. Raises AutopipeError.
    """
    check_mode(mode, partial=bool(overrides) or until is not None, signed=signers is not None)
    start, result = time.monotonic(), dict[str, Any](exit_code=0)
    patience = Patience(warn_waiting(emit), lock_timeout)
    options = (overrides, store, until, force, mode, patience, signers)
    try:
        with (
            open_flow(file, *options, build=build, ask=True, diagnostics=diagnostics) as flow,
            _open_remote(flow, file.absolute().parent, emit) as remote,
            name_bisect(file, flow.pipeline.target, build=build, store=store),
        ):
            _check_owner(flow, output)
            artifacts = _run_stages(flow, force, emit, remote, warn_stale=not overrides)
            if reproducible:
                _check_reproducible(flow, artifacts, emit)
            flow.locking.check_build(artifacts, flow.store.contents)
            result["package"] = _publish_package(flow, artifacts, output, emit)
            if until is None:
                result |= _lock(flow, artifacts, full=not overrides)
            return artifacts
    except BaseException as error:
        result |= {"exit_code": find_exit_code(error), "error": describe_error(error)}
        raise
    finally:
        emit(RunFinished(**result, seconds=time.monotonic() - start))


def plan(  # noqa: PLR0913 -- one for each option of the command
    file: Path,
    *,
    overrides: Sequence[str] = (),
    store: Path | None = None,
    until: str | None = None,
    force: Collection[str] = (),
    build: str | None = None,
    emit: Emit = lambda _: None,
) -> tuple[Outlook, ...]:
    """Forecast the action of `run` for each stage with its reason; nothing is run."""
    patience = Patience(warn_waiting(emit))
    with open_flow(file, overrides, store, until, force, Mode.AUTO, patience, build=build) as flow:
        outlooks = forecast(
            flow.plan,
            flow.host,
            flow.history,
            force=force,
            warn=lambda text: emit(Warn(stage="store", message=text)),
        )
        return tuple(flow.locking.explain(outlook) for outlook in outlooks)


def list_tasks(
    file: Path,
    *,
    overrides: Sequence[str] = (),
    store: Path | None = None,
    build: str | None = None,
    emit: Emit = lambda _: None,
) -> "tuple[Task, ...]":
    """Run a pipeline file up to its tasks and return all of them, including dropped ones."""
    patience = Patience(warn_waiting(emit))
    with open_flow(file, overrides, store, "tasks", (), patience=patience, build=build) as flow:
        return extract_tasks(flow, emit)[0]


def extract_tasks(flow: Flow, emit: Emit) -> "tuple[tuple[Task, ...], Path]":
    """Run an opened flow up to its tasks; return them, and the folder of their artifact.

    Patterns that match no task are reported each time, whether or not the stage was cached.
    """
    from autopipe.pipeline.executor import Executor
    from autopipe.tasks.filters.unmatched import list_idle_rules, list_unmatched
    from autopipe.tasks.task import read_tasks

    warnings: set[str] = set()

    def note(event: Event) -> None:
        warnings.update([event.message] if isinstance(event, Warn) else ())
        emit(event)

    artifacts = Executor(flow.store, flow.host, flow.isolate, note, history=flow.history).run(
        flow.plan
    )
    folder = artifacts["tasks"].path
    tasks = read_tasks(folder)
    idle = list_idle_rules(tasks, flow.pipeline.schedules)
    for text in (*list_unmatched(tasks, flow.pipeline.tasks), *idle):
        if text not in warnings:
            emit(Warn(stage="tasks", message=text))
    return tasks, folder


@contextmanager
def open_flow(  # noqa: PLR0913, PLR0917 -- one for each option that the commands have
    file: Path,
    overrides: Sequence[str],
    root: Path | None,
    until: str | None,
    force: Collection[str],
    mode: Mode = Mode.OFF,
    patience: Patience = FOR_EVER,
    signers: "Signers | None" = None,
    *,
    build: str | None = None,
    ask: bool = False,
    diagnostics: Diagnostics = NO_DIAGNOSTICS,
) -> Iterator[Flow]:
    """Open the store of a pipeline file, and plan the requested stages.

    With `ask`, TVM is queried for the facts that a lock records.
    """
    pipeline = load(file, overrides, build)
    stages, _ = wire_stages(file, pipeline, until=until, force=force)
    root = root or find_default_root()
    with open_store(root, patience) as store, _make_zygote(store.tmp) as zygote:
        host = Host(pipeline.target, store, lambda: _examine_tvm(zygote, store))
        locking = begin(
            file, pipeline, stages, host, store.contents, mode, signers, build=build, ask=ask
        )
        steps = build_plan(locking.stages(stages, force), until=until)
        history = History.of(store, file, pipeline.name, build)
        environment = locking.environment(host)
        yield Flow(pipeline, steps, store, environment, zygote, locking, history, diagnostics)


def _check_reproducible(flow: Flow, artifacts: Mapping[str, Artifact], emit: Emit) -> None:
    """Raise GateError where a second build produces different files."""
    from autopipe.lock.rebuild import Rebuilding

    Rebuilding(flow.plan, flow.store, flow.host, _make_zygote, emit).check(artifacts)


def _lock(flow: Flow, artifacts: Mapping[str, Artifact], *, full: bool) -> dict[str, str | None]:
    """Write the lock, or explain its absence; return fields of `RunFinished`."""
    if full:
        lock = flow.locking.write(artifacts, flow.store)
        return {"lock": None if lock is None else str(lock)}
    why = "no lock is written with --set"
    return {"unlocked": why if flow.locking.mode is Mode.AUTO else None}


def _make_zygote(tmp: Path) -> Zygote:
    """Start the process that runs stages, with a folder for temporary files."""
    return Zygote(PRELOADED, tmp)


def warn_waiting(emit: Emit) -> Callable[[str], None]:
    """Return a function that warns of the processes that the store waits for."""
    return lambda owner: emit(Warn(stage="store", message=f"waiting for {owner}"))


def _publish_package(
    flow: Flow, artifacts: Mapping[str, Artifact], output: Path, emit: Emit
) -> str | None:
    """Publish the package of a run; return its path, or None without a package."""
    for name, artifact in artifacts.items():
        if artifact.kind is Kind.PACKAGE:
            count = partial(Watch(name, emit).count_bytes, f"MiB copied to {output}")
            package = publish_package(artifact.path, output, count)
            flow.history.remember_package(package)
            return str(package)
    return None


def _check_owner(flow: Flow, output: Path) -> None:
    """Raise ConfigError where publishing would overwrite the package of another pipeline file."""
    packs = any(step.stage.produces is Kind.PACKAGE for step in flow.plan)
    package = output / f"{flow.pipeline.name}.tar"
    owner = flow.history.owner(package) if packs else None
    if owner is not None:
        raise ConfigError(
            f"{package} is the package of {owner}, whose name is {flow.pipeline.name}, too: give"
            f" {flow.history.file.name} another `name`, or choose another --output"
        )


def _run_stages(
    flow: Flow,
    force: Collection[str],
    emit: Emit,
    remote: "Remote | None",
    *,
    warn_stale: bool,
) -> dict[str, Artifact]:
    """Run the stages of an opened flow as planned by its lock."""
    from autopipe.pipeline.executor import Executor

    executor = Executor(
        flow.store,
        flow.host,
        flow.isolate,
        emit,
        remote,
        _build_inspection(flow, emit),
        flow.history,
        flow.diagnostics,
    )
    triple = str(flow.host.facts([Facet.TARGET])[Facet.TARGET]["mtriple"])  # a lock may name it
    cross.check_linker(flow.pipeline.target, flow.plan, triple)
    cross.check_compiler(flow.pipeline.target, flow.plan)
    if is_foreign(triple) and remote is None:  # a remote may have what cannot be done here
        outlooks = forecast(flow.plan, flow.host, flow.history, force=force, warn=lambda _: None)
        cross.check_stages(flow.plan, outlooks, triple)
    if text := cross.explain_unverified(flow.plan, triple):
        emit(Warn(stage="verify", message=text))
    flow.locking.require(lambda: _extract_tasks(executor, flow.plan))
    if warn_stale and (stale := flow.locking.describe_staleness()):
        emit(Warn(stage="lock", message=stale))
    traced_stages = flow.diagnostics.stages(one.stage for one in flow.plan)
    return executor.run(flow.plan, force={*force, *traced_stages})


def _build_inspection(flow: Flow, emit: Emit) -> "Look":
    """Build the callback that inspects each artifact and records the configuration of a build."""
    from autopipe.api.evidence import Evidence

    evidence = Evidence(flow.store.root, flow.host, flow.pipeline.gates, emit)
    before, configuration = flow.history.last_run(), flow.pipeline.model_dump(mode="json")

    def look(stage: str, artifacts: Mapping[str, Artifact]) -> None:
        if stage == "build":
            flow.history.remember_run(configuration, before)
        evidence(stage, artifacts)

    return look


def _open_remote(flow: Flow, base: Path, emit: Emit) -> "AbstractContextManager[Remote | None]":
    """Open the remote of a pipeline; a frozen run has none."""
    if flow.pipeline.cache.remote is None or flow.locking.mode is Mode.FROZEN:
        return nullcontext()
    from autopipe.api.shapes import SHAPES
    from autopipe.remote.shared import open_shared

    return open_shared(flow.pipeline.cache, base, flow.store, emit, SHAPES)


def _extract_tasks(executor: "Executor", plan: Plan) -> Path | None:
    """Run the plan up to its tasks and return their folder; None for a plan that ends earlier."""
    names = [step.name for step in plan]
    if "tasks" not in names:
        return None
    return executor.run(plan[: names.index("tasks") + 1])["tasks"].path


def _examine_tvm(zygote: Zygote, store: Store) -> Stack:
    """Query the facts of TVM, which also checks that it works.

    Raises SetupError, and StoreError for a full or failing disk.
    """
    log = store.root / "logs" / "examine.log"
    try:
        stack = zygote.call(examine_tvm, {}, log, lambda _: None)
    except (Killed, Bug, SetupError) as error:
        reason = str(error).rstrip().splitlines()[-1 if isinstance(error, Bug) else 0]
        if words := refusal.find_refusal(reason):
            raise StoreError(f"{log}: {words}; TVM cannot be started") from error
        if OUT_OF_MEMORY in reason or "SIGKILL" in reason:
            raise SetupError(f"TVM cannot be started: {reason}") from error
        if read_address_limit() < _ADDRESSES:  # libraries fail in ways of their own then
            raise SetupError(
                f"TVM cannot be started ({reason}), {OUT_OF_MEMORY}? {describe_memory_limit()}"
            ) from error
        raise SetupError(describe_tvm_misfit(reason)) from error
    return stack
