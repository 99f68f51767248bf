"""`autopipe report` on files; on builds in a store it is in tests/system/test_report_page.py."""

import subprocess
import sys
from functools import partial
from hashlib import sha256

import pytest

from autopipe.artifacts.model_nodes import (
    KernelCall,
    KernelFunction,
    LibraryNodes,
    ModelNode,
    NodeMap,
)
from autopipe.artifacts.tuning import TuningResult
from autopipe.lock import records, text
from autopipe.report.document import as_json
from tests.artifacts.examples import best_record, tuned_task, tuning_report
from tests.lock.examples import LOCK, TASKS
from tests.packaging import packages
from tests.report.pages import Page
from tests.report.reports import full
from tests.test_architecture import IMPORTED, ROOT, heavy_imports

pytestmark = pytest.mark.usefixtures("no_leaks")

TASK = {"name": "dense", "workload": "0f", "calls": 2, "engine": "ansor", "implementation": "tile"}


@pytest.fixture
def cli(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    return partial(call, "report")


def page(folder, name):
    return Page((folder / name).read_text())


def cells(made, kernel):
    """The row of a kernel, without its details."""
    rows = (row for row in made.rows if row[:1] and row[0].startswith(kernel))
    return next(rows)[1:]


def test_a_lock_is_a_page(cli, tmp_path):
    (tmp_path / "demo.lock").write_text(text.format_lock(LOCK))
    assert cli("demo.lock").out == "wrote demo.html\n"
    made = page(tmp_path, "demo.html")
    assert "From a lock: " in made.text
    assert cells(made, "fused_matmul_add") == [
        "2", "autotvm", "direct", "4.6 us", "9.2 us", " 82.1%",
    ]  # fmt: skip
    assert cells(made, "softmax") == ["1", "static", "direct", "", "", ""], "nothing is known"
    assert "template contraction, version 2" in made.text
    assert "mcpu znver4" in made.text
    assert "of 3; nothing" not in made.text


def test_records_beside_a_lock_tell_of_traces_and_failures(cli, tmp_path):
    searched = TASKS[1].workload
    tuned = TuningResult(
        tuning_report(tuned_task(1, searched, failed=2, share=0.25)),
        {searched: best_record(searched, schedule='[[["Split", ["b0"], [4], ["l1"]]], []]')},
    )
    lines = records.format_records(tuned)
    lock = LOCK.model_copy(update={"records": sha256(lines.encode()).hexdigest()})
    (tmp_path / "demo.lock").write_text(text.format_lock(lock))
    (tmp_path / "demo.records.jsonl").write_text(lines)
    cli("demo.lock", "-o", "deep/page.html")
    made = page(tmp_path, "deep/page.html")
    assert "l1 = Split(b0, 4)" in made.text
    assert ["searched", "2 of 64 trials failed"] in made.rows
    (tmp_path / "demo.records.jsonl").write_text(lines + "{}\n")
    assert "not the records that demo.lock names" in cli("demo.lock", code=6).err


def test_a_package_is_a_page_with_nodes(cli, tmp_path):
    def add(document):
        build = document["predicate"]["buildDefinition"]
        build["internalParameters"]["tasks"] = [TASK, {**TASK, "name": "add", "calls": 1}]

    package = packages.changed(packages.make(tmp_path / "made"), manifest=add)
    assert cli(package).out == "wrote changed.html\n"
    made = page(tmp_path, "changed.html")
    assert "From a package" in made.text
    assert "onnxruntime 1.31.1, 8 cases" in made.text
    assert cells(made, "dense")[:3] == ["2", "ansor", "tile"]


def test_nodes_of_a_package_are_told_where_all_calls_are_known(tmp_path):
    from autopipe.api.saved_builds import read_reports

    def add(document):
        build = document["predicate"]["buildDefinition"]
        tasks = [TASK, {**TASK, "name": "add", "calls": 2}]
        build["internalParameters"]["tasks"] = tasks

    calls = (
        KernelCall(kernel="dense", nodes=(1,)), KernelCall(kernel="dense", nodes=(0, 7)),
        KernelCall(kernel="add", nodes=(0,), reads=(0,)),
    )  # fmt: skip
    nodes = NodeMap(
        nodes=(ModelNode(name="b", op="Add"), ModelNode(name="a", op="Mul")),
        libraries=(
            LibraryNodes(library="lib.so", functions=(KernelFunction(name="main", calls=calls),)),
        ),
    )
    package = packages.make(tmp_path / "made", nodes)
    (report,) = read_reports(packages.changed(package, manifest=add))
    assert [task.nodes for task in report.tasks] == [("b", "a"), ()]
    (graph,) = report.graphs
    assert [call.task for call in graph.calls] == [0, 0, 1]
    assert graph.calls[2].reads == (0,)


def test_a_report_is_the_page_that_its_run_would_write(cli, tmp_path):
    from autopipe.report.html.page import build_page

    (tmp_path / "run.json").write_text(full().text())
    (tmp_path / "all.json").write_text(as_json(full("one"), full("two")))
    cli("run.json")
    cli("all.json")
    assert (tmp_path / "run.html").read_text() == build_page(full())
    assert (tmp_path / "all.html").read_text() == build_page(full("one"), full("two"))


@pytest.mark.fault("E11")
def test_what_is_no_build_is_refused_and_nothing_is_written(cli, tmp_path):
    (tmp_path / "x.txt").write_text("x")
    (tmp_path / "x.json").write_text('{"version": 2}')
    (tmp_path / "demo.lock").write_text(text.format_lock(LOCK))
    package = packages.make(tmp_path / "made")
    package.write_bytes(package.read_bytes()[:2000])
    before = sorted(tmp_path.rglob("*"))
    assert "neither a lock, nor a package" in cli("x.txt", code=2).err
    assert "x.json: not the report of a run" in cli("x.json", code=2).err
    assert "none.tar: No such file" in cli("none.tar", code=2).err
    assert "demo.tar" in cli(package, code=3).err
    assert "--output a.md: it is a page" in cli("demo.lock", "-o", "a.md", code=2).err
    assert "--tir makes schedules again" in cli("demo.lock", "--tir", code=2).err
    assert "--build and --set are for pipeline" in cli("demo.lock", "--build", "a", code=2).err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_page_imports_nothing_heavy(tmp_path):
    (tmp_path / "demo.lock").write_text(text.format_lock(LOCK))
    out = tmp_path / "a.html"
    for path in (tmp_path / "demo.lock", packages.make(tmp_path / "made")):
        arguments = [sys.executable, "-c", IMPORTED, "report", path, "-o", out]
        done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
        assert heavy_imports(done.stderr) == (0, []), done.stderr
