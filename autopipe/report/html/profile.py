"""The section on the time of each kernel of the compiled model against its bound."""

from typing import Final

from autopipe.artifacts.model_nodes import name_kernel
from autopipe.report.document import KernelTime, RunReport, TaskReport
from autopipe.report.html.elements import Markup, join_lines, make_element
from autopipe.report.html.tables import (
    Cell,
    TableRow,
    make_ratio_cell,
    make_table,
    make_time_cell,
)
from autopipe.report.html.tasks import compute_tuned_time
from autopipe.report.html.view import BuildView
from autopipe.report.units import format_plural, format_seconds

_HEADER: Final = ("kernel", ">calls", ">measured", ">share", ">bound", ">times the bound",
                  ">estimated share", ">in tuning", ">measured by tuning's")  # fmt: skip


def write_profile(view: BuildView) -> Markup:
    """Write the kernels by their time in the compiled model, the slowest first."""
    profile = view.report.profile
    if profile is None:
        return Markup()
    kernels = sorted(profile.kernels, key=lambda one: -one.seconds)
    text = (
        f"{profile.library} on {format_plural(profile.threads, 'thread')}, {profile.runs} runs: "
        "a run "
        f"takes {format_seconds(profile.whole)}, its kernels {format_seconds(profile.sum)} in "
        "sum. The bound of "
        "a kernel is the longer of its operations and its bytes at what this machine reached just "
        f"then: {profile.gflops:.0f} GFLOPS in a product of float32 matrices, {profile.gbps:.1f} "
        "GB/s in a copy. A kernel takes less than that where Winograd needs fewer operations, "
        "where its operands lie in a cache, or where other programs slowed what was reached."
    )
    rows = (_build_row(view, one, profile.sum) for one in kernels)
    disturbance = f"Meanwhile {profile.disturbed}: times are longer than on a quiet machine."
    return join_lines(
        make_element("p", text),
        make_element("p", disturbance, class_="warning") if profile.disturbed else None,
        make_table("Kernels of the built model", _HEADER, rows),
    )


def _build_row(view: BuildView, kernel: KernelTime, total: float) -> TableRow:
    task = _find_task(view.report, kernel)
    tuned_time = None if task is None else compute_tuned_time(task)
    share = kernel.seconds / total if total else 0.0
    over = kernel.seconds / kernel.bound if kernel.bound else None
    anchor = view.anchor(f"kernel-{kernel.task}")
    name = name_kernel(kernel.name)
    link = make_element("a", name, href=f"#{anchor}") if task else name
    estimate = None if task is None or task.share is None else f"{task.share:.1%}"
    return TableRow((
        link, Cell(kernel.calls, kernel.calls),
        make_time_cell(kernel.seconds), Cell(f"{share:.1%}", share),
        Cell(format_seconds(kernel.bound) if kernel.bound else None, kernel.bound),
        make_ratio_cell(over), Cell(estimate, task.share if task else None),
        make_time_cell(tuned_time),
        make_ratio_cell(kernel.seconds / tuned_time if tuned_time else None),
    ))  # fmt: skip


def _find_task(report: RunReport, kernel: KernelTime) -> TaskReport | None:
    at = kernel.task
    return None if at is None or not 0 <= at < len(report.tasks) else report.tasks[at]
