"""A pipeline file run, or looked at: what the command line does, as functions."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from autopipe.config import Pipeline
from autopipe.config.load import load
from autopipe.errors import ConfigError, SetupError
from autopipe.interrupt import exit_code
from autopipe.pipeline.environment import Host, Stack, requirement, version
from autopipe.pipeline.events import Event, RunFinished, Warn
from autopipe.pipeline.executor import Executor
from autopipe.pipeline.forecast import Outlook, forecast
from autopipe.pipeline.isolate import Bug, Killed, Zygote
from autopipe.pipeline.plan import Plan, build_plan, require
from autopipe.pipeline.stage import Artifact, Kind
from autopipe.pipeline.store import Store, default_root, open_store
from autopipe.publish import publish
from autopipe.stages import stages_of

if TYPE_CHECKING:
    from autopipe.task import Task

OUTPUT: Final = Path("dist")
"""Where packages go, unless the user says otherwise."""

EXAMINE: Final = "autopipe.compiler.stack:examine"
"""What asks TVM, in a child process."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What all commands on a pipeline file need."""

    pipeline: Pipeline
    plan: Plan
    store: Store
    host: Host
    isolate: Zygote


def run(  # noqa: PLR0913 -- one for each option of the command
    file: Path,
    *,
    overrides: Sequence[str] = (),
    store: Path | None = None,
    output: Path = OUTPUT,
    until: str | None = None,
    force: Collection[str] = (),
    emit: Callable[[Event], None] = lambda _: None,
) -> dict[str, Artifact]:
    """Run a pipeline file, publish its package, and return the artifact of each stage by name.

    `overrides` are like `tuning.budget.trials=64`. Raises an AutopipeError whose `exit_code`
    says what kind of failure it was.
    """
    start = time.monotonic()
    code, package = 0, None
    try:
        with opened(file, overrides, store, until, force) as flow:
            executor = Executor(flow.store, flow.host, flow.isolate, emit)
            artifacts = executor.run(flow.plan, force=force)
            for artifact in artifacts.values():
                if artifact.kind is Kind.PACKAGE:
                    package = str(publish(artifact.path, output))
            return artifacts
    except BaseException as error:
        code = exit_code(error)
        raise
    finally:
        seconds = time.monotonic() - start
        emit(RunFinished(exit_code=code, seconds=seconds, package=package))


def plan(  # noqa: PLR0913 -- one for each option of the command
    file: Path,
    *,
    overrides: Sequence[str] = (),
    store: Path | None = None,
    until: str | None = None,
    force: Collection[str] = (),
    emit: Callable[[Event], None] = lambda _: None,
) -> tuple[Outlook, ...]:
    """Return what `run` would do with each stage, and why; nothing is run."""
    with opened(file, overrides, store, until, force) as flow:
        return forecast(
            flow.plan,
            flow.store,
            flow.host,
            force=force,
            warn=lambda text: emit(Warn(stage="store", message=text)),
        )


def check(file: Path) -> None:
    """Read a pipeline file and wire its stages. Raises ConfigError with all that is wrong."""
    pipeline = load(file)
    build_plan(stages_of(pipeline, file.absolute().parent))


def tasks(
    file: Path,
    *,
    overrides: Sequence[str] = (),
    store: Path | None = None,
    emit: Callable[[Event], None] = lambda _: None,
) -> "tuple[Task, ...]":
    """Run a pipeline file up to its tasks and return them all, dropped ones too."""
    with opened(file, overrides, store, "tasks", ()) as flow:
        return extract(flow, emit)[0]


def init(model: Path, output: Path) -> None:
    """Write a pipeline file that runs for a model. Raises ConfigError if the file is there."""
    from autopipe.starter import starter

    if output.exists():
        raise ConfigError(f"{output}: is there already; choose another --output")
    text = starter(model, output)
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"{output}: {error.strerror}") from error


def extract(flow: Flow, emit: Callable[[Event], None]) -> "tuple[tuple[Task, ...], Path]":
    """Run an opened flow up to its tasks; return them, and the folder of their artifact.

    Patterns that match no task are told each time, whether or not the stage was cached.
    """
    from autopipe.filters.unmatched import idle_rules, unmatched
    from autopipe.task import read_tasks

    told: set[str] = set()

    def note(event: Event) -> None:
        told.update([event.message] if isinstance(event, Warn) else ())
        emit(event)

    artifacts = Executor(flow.store, flow.host, flow.isolate, note).run(flow.plan)
    folder = artifacts["tasks"].path
    found = read_tasks(folder)
    vain = (*unmatched(found, flow.pipeline.tasks), *idle_rules(found, flow.pipeline.schedules))
    for text in vain:
        if text not in told:
            emit(Warn(stage="tasks", message=text))
    return found, folder


@contextmanager
def opened(
    file: Path,
    overrides: Sequence[str],
    root: Path | None,
    until: str | None,
    force: Collection[str],
) -> Iterator[Flow]:
    """Open the store of a pipeline file, with the stages that are asked for as a plan."""
    pipeline = load(file, overrides)
    steps = build_plan(stages_of(pipeline, file.absolute().parent), until=until)
    require(force, [step.name for step in steps.steps], "--force")
    with open_store(root or default_root()) as store, Zygote(tmp=store.tmp) as zygote:
        host = Host(pipeline.target, store, lambda: _examine(zygote, store))
        yield Flow(pipeline, steps, store, host, zygote)


def _examine(zygote: Zygote, store: Store) -> Stack:
    """Ask TVM what the facts need; that it can answer is the check that it works.

    Raises SetupError.
    """
    log = store.root / "logs" / "examine.log"
    try:
        found = zygote.call(EXAMINE, {}, log, lambda _: None)
    except (Killed, Bug, SetupError) as error:
        reason = str(error).rstrip().splitlines()[-1 if isinstance(error, Bug) else 0]
        raise SetupError(misfit(reason)) from error
    return cast("Mapping[str, str]", found)


def misfit(reason: str) -> str:
    """Say that TVM and tvm-ffi do not fit each other, and what to install."""
    return (
        f"apache-tvm {version('apache-tvm')} does not work with apache-tvm-ffi "
        f"{version('apache-tvm-ffi')} ({reason}): "
        f"pip install {requirement('apache-tvm')} {requirement('apache-tvm-ffi')}"
    )
