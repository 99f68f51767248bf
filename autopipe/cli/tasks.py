"""`autopipe tasks`: the table of tuning tasks, one task in full, and tasks as scripts."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from autopipe.cli.options import BuildName, File, Json, Set, StoreRoot, print_warnings
from autopipe.cli.terminal import print_lines, show_json

if TYPE_CHECKING:
    from autopipe.pipeline.events import Emit
    from autopipe.tasks.task import Task

Number = Annotated[
    int | None, typer.Option("--show", metavar="N", help="Only task N: its ops and its TIR")
]
Folder = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Write each task as a script that tunes it alone"),
]


class Order(StrEnum):
    """A column of the table: ascending for the index, descending for costs."""

    INDEX = "index"
    SHARE = "share"
    FLOPS = "flops"
    BYTES = "bytes"

    def sorted(self, tasks: "Iterable[Task]") -> "list[Task]":
        """Sort tasks in this order; the sort is stable."""
        return sorted(tasks, key=lambda task: getattr(task, self), reverse=self is not Order.INDEX)


Sort = Annotated[Order, typer.Option(help="What comes first")]


def tasks(  # noqa: PLR0913 -- one for each option
    file: File,
    *,
    number: Number = None,
    export: Folder = None,
    sort: Sort = Order.INDEX,
    build: BuildName = None,
    overrides: Set = None,
    store: StoreRoot = None,
    as_json: Json = False,
) -> None:
    """List the tuning tasks of a model with their filters."""
    query = _TaskQuery(overrides or (), store, build, print_warnings)
    if export is not None:
        _export_tasks(file, export, number, query, as_json=as_json)
    elif number is not None:
        _print_task(file, number, query, as_json=as_json)
    else:
        _print_tasks(file, sort, query, as_json=as_json)


class _TaskQuery(NamedTuple):
    """Common arguments of the functions, by name."""

    overrides: Sequence[str]
    store: Path | None
    build: str | None
    emit: "Emit"


def _print_tasks(file: Path, sort: Order, query: _TaskQuery, *, as_json: bool) -> None:
    from autopipe.api import flow
    from autopipe.report.tasks import choose_table_width, format_task_table

    tasks = sort.sorted(flow.list_tasks(file, **query._asdict()))
    if as_json:
        show_json([task.model_dump(mode="json") for task in tasks])
    else:
        print_lines(format_task_table(tasks, choose_table_width()).split("\n"))


def _print_task(file: Path, number: int, query: _TaskQuery, *, as_json: bool) -> None:
    from autopipe.api import tasks
    from autopipe.report.tasks import choose_table_width, list_task_lines

    described_task = tasks.show_task(file, number, **query._asdict())
    task, schedules = described_task.task.model_dump(mode="json"), asdict(described_task.schedules)
    if as_json:
        show_json({"task": task, "schedules": schedules, "tir": described_task.tir})
    else:
        task_lines = list_task_lines(
            described_task.task,
            described_task.schedules,
            described_task.tir,
            choose_table_width(),
        )
        print_lines("\n".join(task_lines).split("\n"))


def _export_tasks(
    file: Path, folder: Path, number: int | None, query: _TaskQuery, *, as_json: bool
) -> None:
    from autopipe.api import tasks

    paths = tasks.export_tasks(file, folder, index=number, **query._asdict())
    if as_json:
        show_json([str(path) for path in paths])
    else:
        print_lines([f"wrote {path}" for path in paths])
