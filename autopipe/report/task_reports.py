"""Join the artifacts of a build's stages to the rows of a report about tasks."""

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
"""Columns of a line about an operator."""


@dataclass(slots=True)
class TaskSources:
    """The artifacts about tasks that were read so far."""

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


def report_tasks(sources: TaskSources, graphs: Sequence[KernelGraph]) -> tuple[TaskReport, ...]:
    """Build a row for each task of the library; none without a build."""
    if sources.library is None:
        return ()
    rounds = sources.tuning.comparisons if sources.tuning else ()
    inside = ChainMap(*(one.times for one in rounds))  # a task of two sizes at the first
    order = [node.name for node in sources.nodes.nodes] if sources.nodes else []
    nodes = find_nodes(graphs, order)
    return tuple(
        _build_row(task, sources, nodes.get(at, ()), inside.get(task.workload))
        for at, task in enumerate(sources.library.tasks)
    )


def report_graphs(sources: TaskSources) -> tuple[KernelGraph, ...]:
    """Build the graphs of each library; none without a build."""
    if sources.library is None or sources.nodes is None:
        return ()
    tasks = {task.workload: at for at, task in enumerate(sources.library.tasks)}
    functions = {
        name: tasks.get(task.workload) for task in sources.tasks.values() for name in task.functions
    }
    return draw_graphs(sources.nodes, functions, label_libraries(sources.library.entries))


def draw_graphs(
    nodes: NodeMap, tasks: Mapping[str, int | None], labels: Mapping[str, str]
) -> tuple[KernelGraph, ...]:
    """Build the graphs of each library, with the task of each call by its function's name.

    Invalid positions in a file are omitted.
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
    """Collect the nodes that the calls of each task compute, in the `order` of the model."""
    places = {name: at for at, name in enumerate(order)}
    nodes_by_task: dict[int, set[str]] = defaultdict(set)
    for call in (call for graph in graphs for call in graph.calls):
        if call.task is not None:
            nodes_by_task[call.task].update(call.nodes)
    return {at: tuple(sorted(names, key=places.__getitem__)) for at, names in nodes_by_task.items()}


def label_libraries(entries: Sequence[SizedLibrary]) -> dict[str, str]:
    """Return the suffix of function names in each specialized library."""
    return {one.library: f"@{'x'.join(map(str, one.sizes.values()))}" for one in entries}


def _build_row(
    entry: LibraryTask, sources: TaskSources, nodes: tuple[str, ...], in_model: float | None
) -> TaskReport:
    task, record = sources.tasks.get(entry.workload), sources.records.get(entry.workload)
    tunings = sources.tuning.tasks if sources.tuning else ()
    tuning = next((one for one in tunings if one.workload == entry.workload), None)
    schedule_record = record if entry.seconds is not None else None
    return TaskReport(
        name=entry.name, workload=entry.workload, calls=entry.calls, engine=entry.engine,
        implementation=entry.implementation, seconds=entry.seconds, reason=entry.reason,
        share=(tuning and tuning.share) or (task and task.share), in_model=in_model,
        dropped=task and task.dropped,
        trials=tuning.trials if tuning else 0, failed=tuning.failed if tuning else 0,
        flops=task.flops if task else 0.0, bytes=task.bytes if task else 0, nodes=nodes,
        result_bytes=count_result_bytes(task.info) if task else 0,
        ops=task.info.names if task else (),
        computes=tuple(list_op_lines(task, _WIDTH)) if task else (),
        schedule=tuple(list_schedule_lines(schedule_record.schedule)) if schedule_record else (),
        problems=tuple(_list_problems(entry)),
    )  # fmt: skip


def _list_problems(library_task: LibraryTask) -> Iterator[str]:
    for wrong in library_task.rejected:
        yield f"{wrong.engine} on {wrong.implementation} was rejected: {wrong.reason or 'unknown'}"
    for failure in library_task.failures:
        again = ", twice" if failure.retried else ""
        source = f"{failure.engine} on {failure.implementation}"
        yield f"{source} failed while {failure.doing}: {failure.how}{again}"
    if library_task.unchecked is not None:
        yield f"not compared with plain loops: {library_task.unchecked}"
