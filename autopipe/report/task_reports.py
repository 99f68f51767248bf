"""The rows of a report about tasks, joined from what the stages of a build leave."""

from collections import ChainMap, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from autopipe.artifacts.library import BuiltLibrary, LibraryTask
from autopipe.artifacts.model_nodes import NodeMap
from autopipe.artifacts.tuning import BestRecord, TuningReport, read_records
from autopipe.report.document import TaskReport
from autopipe.report.op_info import listing
from autopipe.report.records import schedule
from autopipe.tasks.task import Task, read_tasks

_WIDTH: Final = 2000
"""Columns of a line that says what an operator computes."""


@dataclass(slots=True)
class TaskSources:
    """What is known of tasks so far."""

    tasks: Mapping[str, Task] = field(default_factory=dict)
    """By workload."""
    tuning: TuningReport | None = None
    records: Mapping[str, BestRecord] = field(default_factory=dict)
    """By workload."""
    library: BuiltLibrary | None = None
    nodes: NodeMap | None = None

    def read(self, stage: str, folder: Path) -> None:
        """Read the artifact of a stage. Raises OSError for files that it lacks."""
        match stage:
            case "tasks":
                self.tasks = {task.workload: task for task in read_tasks(folder)}
            case "tune":
                self.tuning = TuningReport.read(folder)
                self.records = read_records(folder)
            case "build":
                self.library = BuiltLibrary.read(folder)
                self.nodes = NodeMap.read(folder)
            case _:
                pass


def report_tasks(known: TaskSources) -> tuple[TaskReport, ...]:
    """Return a row for each task of the library; none where nothing was built."""
    if known.library is None:
        return ()
    played = known.tuning.played if known.tuning else ()
    inside = ChainMap(*(one.times for one in played))  # a task of two sizes at the first
    nodes = find_nodes(known)
    return tuple(
        _row(task, known, nodes.get(task.workload, ()), inside.get(task.workload))
        for task in known.library.tasks
    )


def find_nodes(known: TaskSources) -> dict[str, tuple[str, ...]]:
    """Return the names of the nodes that the kernels of each workload compute."""
    workloads = {name: task.workload for task in known.tasks.values() for name in task.functions}
    labels = label_libraries(known.library)
    found: dict[str, set[int]] = defaultdict(set)
    listed = known.nodes.nodes if known.nodes else ()
    for library in known.nodes.libraries if known.nodes else ():
        for call in (call for function in library.functions for call in function.calls):
            workload = workloads.get(call.function + labels.get(library.library, ""))
            if workload is not None:
                found[workload].update(node for node in call.nodes if node < len(listed))
    return {name: tuple(listed[node].name for node in sorted(at)) for name, at in found.items()}


def label_libraries(library: BuiltLibrary | None) -> dict[str, str]:
    """Return what the functions of each library for certain sizes have behind their names."""
    entries = library.entries if library else ()
    return {one.library: f"@{'x'.join(map(str, one.sizes.values()))}" for one in entries}


def _row(
    built: LibraryTask, known: TaskSources, nodes: tuple[str, ...], in_model: float | None
) -> TaskReport:
    task, record = known.tasks.get(built.workload), known.records.get(built.workload)
    tunings = known.tuning.tasks if known.tuning else ()
    tuned = next((one for one in tunings if one.workload == built.workload), None)
    kept = record if built.seconds is not None else None
    return TaskReport(
        name=built.name, workload=built.workload, calls=built.calls, engine=built.engine,
        implementation=built.implementation, seconds=built.seconds, reason=built.reason,
        share=(tuned and tuned.share) or (task and task.share), in_model=in_model,
        dropped=task and task.dropped,
        trials=tuned.trials if tuned else 0, failed=tuned.failed if tuned else 0,
        flops=task.flops if task else 0.0, bytes=task.bytes if task else 0, nodes=nodes,
        computes=tuple(listing(task, _WIDTH)) if task else (),
        schedule=tuple(schedule(kept.schedule)) if kept else (),
        problems=tuple(_problems(built)),
    )  # fmt: skip


def _problems(built: LibraryTask) -> Iterator[str]:
    for wrong in built.rejected:
        yield f"{wrong.engine} on {wrong.implementation} was rejected: {wrong.reason or 'unknown'}"
    for one in built.failures:
        again = ", twice" if one.retried else ""
        yield f"{one.engine} on {one.implementation} failed while {one.doing}: {one.how}{again}"
    if built.unchecked is not None:
        yield f"not compared with plain loops: {built.unchecked}"
