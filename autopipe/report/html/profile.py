"""Time of each kernel of the built model against what this machine reaches at best."""

from typing import Final

from autopipe.artifacts.model_nodes import name_kernel
from autopipe.report.document import KernelTime, RunReport, TaskReport
from autopipe.report.html.elements import Markup, element, lines
from autopipe.report.html.tables import Cell, TableRow, table
from autopipe.report.html.tasks import tuned_time
from autopipe.report.html.view import BuildView
from autopipe.report.units import plural, seconds

_HEADER: Final = ("kernel", ">calls", ">measured", ">share", ">bound", ">times the bound",
                  ">estimated share", ">in tuning", ">measured by tuning's")  # fmt: skip


def write_profile(view: BuildView) -> Markup:
    """Return the kernels by what they take in the built model, the slowest first."""
    profile = view.report.profile
    if profile is None:
        return Markup()
    ordered = sorted(profile.kernels, key=lambda one: -one.seconds)
    told = (
        f"{profile.library} on {plural(profile.threads, 'thread')}, {profile.runs} runs: a run "
        f"takes {seconds(profile.whole)}, its kernels {seconds(profile.sum)} in sum. The bound of "
        "a kernel is the longer of its operations and its bytes at what this machine reached just "
        f"then: {profile.gflops:.0f} GFLOPS in a product of float32 matrices, {profile.gbps:.1f} "
        "GB/s in a copy. A kernel takes less than that where Winograd needs fewer operations, "
        "where its operands lie in a cache, or where other programs slowed what was reached."
    )
    rows = (_row(view, one, profile.sum) for one in ordered)
    disturbed = f"Meanwhile {profile.disturbed}: times are longer than on a quiet machine."
    return lines(
        element("p", told),
        element("p", disturbed, class_="warning") if profile.disturbed else None,
        table("Kernels of the built model", _HEADER, rows),
    )


def _row(view: BuildView, measured: KernelTime, total: float) -> TableRow:
    task = _task(view.report, measured)
    tuned = None if task is None else tuned_time(task)
    share = measured.seconds / total if total else 0.0
    over = measured.seconds / measured.bound if measured.bound else None
    anchor = view.anchor(f"kernel-{measured.task}")
    name = name_kernel(measured.name)
    link = element("a", name, href=f"#{anchor}") if task else name
    estimate = None if task is None or task.share is None else f"{task.share:.1%}"
    return TableRow((
        link, Cell(measured.calls, measured.calls),
        Cell(seconds(measured.seconds), measured.seconds), Cell(f"{share:.1%}", share),
        Cell(seconds(measured.bound) if measured.bound else None, measured.bound),
        _ratio(over), Cell(estimate, task.share if task else None),
        Cell(None if tuned is None else seconds(tuned), tuned),
        _ratio(measured.seconds / tuned if tuned else None),
    ))  # fmt: skip


def _task(report: RunReport, measured: KernelTime) -> TaskReport | None:
    at = measured.task
    return None if at is None or not 0 <= at < len(report.tasks) else report.tasks[at]


def _ratio(value: float | None) -> Cell:
    return Cell(None if value is None else f"{value:.2f}", value)
