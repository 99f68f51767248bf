"""The table of tuning tasks."""

from collections.abc import Iterable, Sequence

from autopipe.report.escape import escape
from autopipe.report.units import count
from autopipe.task import Task
from autopipe.tensor import Tensor

WIDTH = 80
_HEADER = ("#", "share", "calls", "FLOPs", "bytes", "kind")
_GAP = "  "
_INDENT = "      "
_KINDS = {"out_elementwise_fusable": "out_ewise"}  # the one that is too long; TVM writes OutEWise


def table(tasks: Sequence[Task]) -> str:
    """Show each task in 80 columns: share of the time, work, shapes, and why it is dropped."""
    rows = [_HEADER, *map(_cells, tasks)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = WIDTH - sum(widths) - len(_GAP) * len(widths)
    lines = [_line(_HEADER, widths) + "task"]
    for task, row in zip(tasks, rows[1:], strict=True):
        lines.append(_line(row, widths) + escape(task.name, room))
        lines.append(_INDENT + escape(_shapes(task), WIDTH - len(_INDENT)))
        if task.dropped is not None:
            lines.append(_INDENT + escape(f"dropped: {task.dropped}", WIDTH - len(_INDENT)))
    return "\n".join([*lines, "", _summary(tasks)])


def _cells(task: Task) -> tuple[str, ...]:
    kind = escape(_KINDS.get(task.info.kind, task.info.kind), 12)
    return (
        str(task.index), f"{task.share:.1%}", str(task.calls), count(task.flops),
        count(task.bytes), kind,
    )  # fmt: skip


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    *numbers, kind = cells
    right = [cell.rjust(width) for cell, width in zip(numbers, widths, strict=False)]
    return _GAP.join([*right, kind.ljust(widths[-1]), ""])


def _shapes(task: Task) -> str:
    return f"{_tensors(task.inputs)} -> {_tensors(task.outputs)}"


def _tensors(tensors: Iterable[Tensor]) -> str:
    return ", ".join(f"{'x'.join(map(str, t.shape)) or 'scalar'} {t.dtype}" for t in tensors)


def _summary(tasks: Sequence[Task]) -> str:
    kept = [task for task in tasks if task.dropped is None]
    total = sum(task.flops * task.calls for task in tasks)
    share = sum(task.flops * task.calls for task in kept) / total if total else 0.0
    return (
        f"{len(tasks)} tasks, {len(kept)} kept: "
        f"{share:.1%} of {count(total)} FLOPs, "
        f"{sum(task.share for task in kept):.1%} of the estimated time"
    )
