"""Pages about a real build: by its run, and from its store, lock and package."""

import shutil

import pytest
from typer.testing import CliRunner

from autopipe.api import flow
from autopipe.api.bisect import find_bisect_target
from autopipe.api.report_details import attach_tir
from autopipe.api.reports import record_run, save_reports_at_end
from autopipe.api.saved_builds import read_last_builds, read_reports
from autopipe.artifacts.model_nodes import PACKED
from autopipe.errors import ConfigError, WrongBuildError
from autopipe.report.document import RunReport
from autopipe.report.html.page import build_page
from tests.report.pages import Page

KERNEL = ["hidden0.matmul", "hidden0", "relu0"]
"""Nodes of the model that one kernel computes."""

STRICT = ["verify.rtol=1e-12", "verify.atol=1e-12"]
"""No build is as near to its reference."""


def run(folder, *names, **options):
    """Run the pipeline again; return its report."""
    file, store, pages = folder / "mlp.yaml", folder / "store", [folder / name for name in names]
    with (
        save_reports_at_end(lambda _: None, pages) as kept,
        record_run(lambda _: None, kept, file, store=store) as emit,
    ):
        flow.run(file, store=store, output=folder / "dist", emit=emit, **options)
    return kept[0]


@pytest.mark.usefixtures("one_process")
def test_a_run_and_its_store_tell_the_same_of_kernels(warm):
    report = run(warm, "run.html")
    text = (warm / "run.html").read_text()
    assert text == build_page(report)
    page = Page(text)
    assert ", ".join(KERNEL) in page.text
    assert any(call.kernel.endswith(PACKED) for call in report.graphs[0].calls)
    assert PACKED not in page.text, "a kernel has one name"
    assert "= matmul(p0, p1" in page.text, "operators with their tensors"
    assert len(report.tasks) == 4
    assert report.tuning is not None
    assert sum(curve.trials for curve in report.tuning.curves if curve.engine != "all") == 8
    assert report.inputs[0].shape == (8, 128)
    (stored,) = read_last_builds(warm / "mlp.yaml", store=warm / "store")
    assert stored.tasks == report.tasks
    assert stored.tuning == report.tuning
    assert stored.verification == report.verification
    assert (stored.origin, stored.benchmark) == ("build", None)
    assert {stage.stage for stage in stored.stages} >= {"import", "tasks", "tune", "build"}
    Page(build_page(stored))


def test_lock_and_package_tell_of_the_same_kernels(locked):
    (lock,) = read_reports(locked / "mlp.lock")
    (package,) = read_reports(locked / "dist" / "mlp.tar")
    (stored,) = read_last_builds(locked / "mlp.yaml", store=locked / "store")
    for report in (lock, package):
        assert [(task.workload, task.calls, task.engine) for task in report.tasks] == [
            (task.workload, task.calls, task.engine) for task in stored.tasks
        ]
    assert [task.nodes for task in package.tasks] == [task.nodes for task in stored.tasks]
    assert [task.schedule for task in lock.tasks] == [task.schedule for task in stored.tasks]
    assert package.package is not None
    assert package.package.size == (locked / "dist" / "mlp.tar").stat().st_size


def test_the_command_writes_what_is_in_the_store(warm, monkeypatch):
    from autopipe.cli.app import build_app

    monkeypatch.chdir(warm)
    words = ["report", "mlp.yaml", "--store", "store"]
    done = CliRunner().invoke(build_app(), words, catch_exceptions=False)
    assert done.stdout == "wrote mlp.html\n"
    assert "From the last build in the store" in Page((warm / "mlp.html").read_text()).text
    shutil.rmtree(warm / "store" / "actions")
    with pytest.raises(ConfigError, match=r"mlp.yaml has no build in the store; run `autopipe run"):
        read_last_builds(warm / "mlp.yaml", store=warm / "store")


def test_the_tir_of_each_kernel_is_made_again(warm):
    """It is that of the schedule that the build has: of tuning, or of a fallback."""
    file, store = warm / "mlp.yaml", warm / "store"
    run(warm)
    (report,) = read_last_builds(file, store=store)
    scheduled = attach_tir(report, file, store=store)
    assert [task.tir is not None for task in scheduled.tasks] == [True] * len(report.tasks)
    assert all("@T.prim_func" in str(task.tir) for task in scheduled.tasks)
    searched = [str(task.tir) for task in scheduled.tasks if task.seconds is not None]
    assert searched
    assert all("T.parallel" in text or "T.vectorized" in text for text in searched)
    plain = {"tir": None}
    assert [task.model_copy(update=plain) for task in scheduled.tasks] == list(report.tasks)


def test_a_build_that_fails_is_told_with_its_errors_and_bisected_as_it_was_run(warm):
    file, store = warm / "mlp.yaml", warm / "store"
    run(warm)
    kept: list[RunReport] = []
    with (
        pytest.raises(WrongBuildError, match=rf"\nnext: autopipe bisect {file} --store {store}$"),
        record_run(lambda _: None, kept, file, overrides=STRICT, store=store) as emit,
    ):
        flow.run(file, store=store, output=warm / "dist", overrides=STRICT, emit=emit)
    (report,) = kept
    assert report.verification is not None
    assert str(report.error).startswith(str(report.verification.failure))
    assert report.since is not None
    assert report.since.fields == (
        "verify.atol changed from null to 1e-12", "verify.rtol changed from null to 1e-12",
    )  # fmt: skip
    assert find_bisect_target(file, store=store).options.rtol == 1e-12
    assert find_bisect_target(file, store=store, overrides=["verify.rtol=1"]).options.atol is None
    (stored,) = read_last_builds(file, store=store)
    assert stored.configuration == report.configuration
    assert (stored.since, stored.sources) == (report.since, report.sources)
    assert stored.sources.keys() >= {"import.model"}
    assert stored.verification is None, "the last one is of other tolerances"


def test_the_verification_of_another_build_is_not_told(warm):
    shutil.rmtree(warm / "dist", ignore_errors=True)
    before = run(warm, "before.html")
    assert before.since is not None
    assert (before.since.stages, before.since.tasks) == ({}, ())
    changed = run(warm, "first.html", overrides=["tuning=null"], until="build")
    assert changed.since is not None
    assert {name for name, told in changed.since.stages.items() if told} == {"build", "tasks"}
    differing = {one.name: (one.new, one.new_seconds) for one in changed.since.tasks}
    assert set(differing.values()) == {("static on direct", None)}
    assert len(differing) == sum(task.seconds is not None for task in before.tasks)
    (stored,) = read_last_builds(warm / "mlp.yaml", store=warm / "store")
    assert {task.trials for task in stored.tasks} == {0}
    assert stored.verification is None
