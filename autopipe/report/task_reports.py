"""The rows of a report about tasks, joined from what the stages of a build leave."""

from collections import ChainMap, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from autopipe.artifacts.library import BuiltLibrary, LibraryTask
from autopipe.artifacts.model_nodes import NodeMap
from autopipe.artifacts.signature import SizedLibrary
from autopipe.artifacts.tuning import BestRecord, TuningReport, read_records
from autopipe.report.document import GraphCall, KernelGraph, TaskReport
from autopipe.report.op_info import count_result_bytes, list_op_lines
from autopipe.report.records import list_schedule_lines
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


def report_tasks(known: TaskSources, graphs: Sequence[KernelGraph]) -> tuple[TaskReport, ...]:
    """Return a row for each task of the library; none where nothing was built."""
    if known.library is None:
        return ()
    played = known.tuning.played if known.tuning else ()
    inside = ChainMap(*(one.times for one in played))  # a task of two sizes at the first
    order = [node.name for node in known.nodes.nodes] if known.nodes else []
    nodes = find_nodes(graphs, order)
    return tuple(
        _build_row(task, known, nodes.get(at, ()), inside.get(task.workload))
        for at, task in enumerate(known.library.tasks)
    )


def report_graphs(known: TaskSources) -> tuple[KernelGraph, ...]:
    """Return the functions of each library; none where nothing was built."""
    if known.library is None or known.nodes is None:
        return ()
    tasks = {task.workload: at for at, task in enumerate(known.library.tasks)}
    functions = {
        name: tasks.get(task.workload) for task in known.tasks.values() for name in task.functions
    }
    return draw_graphs(known.nodes, functions, label_libraries(known.library.entries))


def draw_graphs(
    nodes: NodeMap, tasks: Mapping[str, int | None], labels: Mapping[str, str]
) -> tuple[KernelGraph, ...]:
    """Return the functions of each library, with the task of each call by its function's name.

    Positions that a file claims and that are none are left out.
    """
    return tuple(
        KernelGraph(library=library.library, function=function.name, calls=tuple(
            GraphCall(
                kernel=call.kernel, added=call.added,
                task=tasks.get(call.function + labels.get(library.library, "")),
                nodes=tuple(nodes.nodes[at].name for at in call.nodes if at < len(nodes.nodes)),
                reads=tuple(at for at in call.reads if at < place),
            )
            for place, call in enumerate(function.calls)
        ))
        for library in nodes.libraries for function in library.functions
    )  # fmt: skip


def find_nodes(graphs: Sequence[KernelGraph], order: Sequence[str]) -> dict[int, tuple[str, ...]]:
    """Return the nodes that the calls of each task compute, in the `order` of the model."""
    places = {name: at for at, name in enumerate(order)}
    found: dict[int, set[str]] = defaultdict(set)
    for call in (call for graph in graphs for call in graph.calls):
        if call.task is not None:
            found[call.task].update(call.nodes)
    return {at: tuple(sorted(names, key=places.__getitem__)) for at, names in found.items()}


def label_libraries(entries: Sequence[SizedLibrary]) -> dict[str, str]:
    """Return what the functions of each library for certain sizes have behind their names."""
    return {one.library: f"@{'x'.join(map(str, one.sizes.values()))}" for one in entries}


def _build_row(
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
        result_bytes=count_result_bytes(task.info) if task else 0,
        ops=task.info.names if task else (),
        computes=tuple(list_op_lines(task, _WIDTH)) if task else (),
        schedule=tuple(list_schedule_lines(kept.schedule)) if kept else (),
        problems=tuple(_list_problems(built)),
    )  # fmt: skip


def _list_problems(built: LibraryTask) -> Iterator[str]:
    for wrong in built.rejected:
        yield f"{wrong.engine} on {wrong.implementation} was rejected: {wrong.reason or 'unknown'}"
    for one in built.failures:
        again = ", twice" if one.retried else ""
        yield f"{one.engine} on {one.implementation} failed while {one.doing}: {one.how}{again}"
    if built.unchecked is not None:
        yield f"not compared with plain loops: {built.unchecked}"
