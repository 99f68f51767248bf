"""Show one task of a pipeline file, and export tasks as scripts, for `autopipe tasks`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from autopipe.api.flow import Flow, extract_tasks, open_flow, warn_waiting
from autopipe.api.task_script import Loops, format_file_name, write_task_script
from autopipe.config.schedules import Rule
from autopipe.environment.facet import Facet
from autopipe.errors import ConfigError, StageError
from autopipe.pipeline.events import Emit, Warn
from autopipe.pipeline.isolate import Bug, Entry
from autopipe.report.tasks import Prospects
from autopipe.store.files import wrap_os_errors
from autopipe.store.locks import Patience
from autopipe.tasks.matching import is_match
from autopipe.tasks.task import Task

_Answer = TypeVar("_Answer")
_WRITE_SCRIPTS: Final = "autopipe.compiler.tvmscript_text:format_workloads"
_FIND_TEMPLATES: Final = "autopipe.schedules.offers:find_templates"


@dataclass(frozen=True, slots=True)
class Shown:
    """A task with its prospective schedules and its TIR before tuning."""

    task: Task
    schedules: Prospects
    """The engines and templates that may schedule it."""
    tir: str
    """Its loops as TVMScript."""


def show_task(  # noqa: PLR0913 -- one for each option of the command
    file: Path,
    index: int,
    *,
    overrides: Sequence[str] = (),
    store: Path | None = None,
    build: str | None = None,
    emit: Emit = lambda _: None,
) -> Shown:
    """Describe one task with its TIR. Raises ConfigError for an unknown index."""
    patience = Patience(warn_waiting(emit))
    with open_flow(file, overrides, store, "tasks", (), patience=patience, build=build) as flow:
        tasks, folder = extract_tasks(flow, emit)
        task = _find_task(tasks, index)
        loops = _read_loops(flow, folder, [task])[task.workload]
        position, rule = _find_rule(flow.pipeline.schedules.rules, task)
        fallback = rule.fallback or flow.pipeline.schedules.fallback
        templates = _list_templates(flow, folder, task, emit)
        engines = rule.engines if task.dropped is None else ()
        return Shown(task, Prospects(position, engines, fallback, templates), loops.tir)


def export_tasks(  # noqa: PLR0913 -- one for each option of the command
    file: Path,
    output: Path,
    *,
    index: int | None = None,
    overrides: Sequence[str] = (),
    store: Path | None = None,
    build: str | None = None,
    emit: Emit = lambda _: None,
) -> list[Path]:
    """Write each task, or one, as a script that tunes only it; return the paths.

    Raises ConfigError for an unknown index or an `output` that is not a new or empty folder, and
    StoreError if it cannot be written.
    """
    with wrap_os_errors(output):
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise ConfigError(f"{output}: is there already; name a new or an empty folder")
    patience = Patience(warn_waiting(emit))
    with open_flow(file, overrides, store, "tasks", (), patience=patience, build=build) as flow:
        tasks, folder = extract_tasks(flow, emit)
        exported_tasks = tasks if index is None else [_find_task(tasks, index)]
        loops = _read_loops(flow, folder, exported_tasks)
        texts = {
            output / format_file_name(task): write_task_script(
                task, loops[task.workload], flow.pipeline, _read_target(flow)
            )
            for task in exported_tasks
        }
    with wrap_os_errors(output):
        output.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
    return list(texts)


def _find_task(tasks: Sequence[Task], index: int) -> Task:
    task = next((task for task in tasks if task.index == index), None)
    if task is None:
        known_indices = f"there are 0 to {len(tasks) - 1}" if tasks else "there are none"
        raise ConfigError(f"no task {index}; {known_indices}")
    return task


def _find_rule(rules: Sequence[Rule], task: Task) -> tuple[int | None, Rule]:
    for position, rule in enumerate(rules):
        if is_match(rule.match, task, task.share):
            return position, rule
    return None, Rule(engines=())


def _read_target(flow: Flow) -> Mapping[str, object]:
    return flow.host.facts({Facet.TARGET})[Facet.TARGET]


def _read_loops(flow: Flow, folder: Path, tasks: Collection[Task]) -> dict[str, Loops]:
    """Read the TIR of tasks, by workload."""
    files = {task.workload: folder / "workloads" / f"{task.workload}.json" for task in tasks}
    argument = {"folder": str(folder / "workloads"), "workloads": list(files)}
    scripts: dict[str, dict[str, Any]] = _call_with_tvm(flow, _WRITE_SCRIPTS, argument)
    return {
        name: Loops(**scripts[name], json=path.read_text("utf-8")) for name, path in files.items()
    }


def _list_templates(flow: Flow, folder: Path, task: Task, emit: Emit) -> Mapping[str, str | None]:
    """List the templates of a task; on an error, warn and return none."""
    argument = {
        "task": task.model_dump(mode="json"),
        "module": str(folder / "workloads" / f"{task.workload}.json"),
        "target": dict(_read_target(flow)),
        "fast_algorithms": flow.pipeline.numerics.fast_algorithms,
    }
    try:
        return _call_with_tvm(flow, _FIND_TEMPLATES, argument)
    except (Bug, StageError) as error:
        reason = str(error).rstrip().splitlines()[-1]
        emit(Warn(stage="tasks", message=f"task {task.index}: its templates fail: {reason}"))
        return {}


def _call_with_tvm(flow: Flow, entry: Entry[_Answer], argument: dict[str, Any]) -> _Answer:
    """Call a function in a process that has TVM."""
    log = flow.store.root / "logs" / "tasks.log"
    return flow.isolate.call(entry, argument, log, lambda _: None)
