"""The stage `build`: which schedule is built in, and what its artifact says of it."""

import json
from pathlib import Path

import pytest

from autopipe.api import flow
from autopipe.artifacts.tuning import TuningResult
from autopipe.compiler.target import machine
from autopipe.config.load import load
from autopipe.environment.facet import Facet
from autopipe.errors import TargetError
from autopipe.pipeline.events import Event, Warn
from autopipe.pipeline.stage import Context
from autopipe.schedules import templates
from autopipe.stages.build import BuildStage
from autopipe.tasks.task import read_tasks
from tests.artifacts.examples import best_record, tuning_report
from tests.schedules.wrong_template import WRONG
from tests.support import here

FILE = Path(__file__).parents[2] / "pipelines" / "use-cases" / "fallback-values.yaml"
FACTS: dict[Facet, dict[str, object]] = {
    Facet.TARGET: here.facts(),
    Facet.TVM: {"tvm": "1"},
    Facet.TOOLCHAIN: {"linker": "one"},
}  # fmt: skip


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    return flow.run(FILE, store=tmp_path_factory.mktemp("store"), until="tasks")


@pytest.fixture
def build(artifacts, tmp_path):
    """Build with the schedules that there are; return the summary, the tasks and the warnings."""

    def build(**changes):
        for name in ("out", "work"):
            (tmp_path / name).mkdir(exist_ok=True)
        heard: list[Event] = []
        ctx = Context(
            inputs={name: artifact.path for name, artifact in artifacts.items()}, facts=FACTS,
            out=tmp_path / "out", work=tmp_path / "work", records=tmp_path / "records" / "sqlite",
            emit=heard.append,
        )  # fmt: skip
        stage = BuildStage.of(load(FILE), FILE.parent).model_copy(update=changes)
        summary = stage.run(ctx)
        tasks = json.loads((tmp_path / "out" / "library.json").read_text())["tasks"]
        return summary, tasks, [event.message for event in heard if isinstance(event, Warn)]

    return build


def test_what_nobody_measured_is_checked(build):
    summary, tasks, warnings = build()
    assert "wrong" not in summary
    assert "not checked" not in summary
    assert all(task["checked"] and task["engine"] == "static" for task in tasks)
    assert warnings == []


@pytest.mark.fault("E1")
def test_a_wrong_schedule_is_not_built_in(build, monkeypatch):
    monkeypatch.setattr(templates, "TEMPLATES", (WRONG,))
    summary, tasks, warnings = build()
    assert {task["engine"] for task in tasks} == {"default"}
    assert f"{len(tasks)} wrong ones put aside" in summary
    assert len(warnings) == len(tasks)
    for task in tasks:
        (rejected,) = task["rejected"]
        assert rejected["engine"] == "static"
        assert "from the plain loops" in rejected["reason"]
        assert (Path(rejected["folder"]) / "reproduce.py").exists()
        assert task["reason"] == "static on direct is wrong"
        assert task["checked"]


def test_nothing_is_checked_for_another_machine(build, monkeypatch):
    def refuse(target):
        raise TargetError("built for aarch64, this machine is x86_64")

    monkeypatch.setattr(machine, "check", refuse)
    summary, tasks, _ = build()
    assert not any(task["checked"] for task in tasks)
    assert {task["unchecked"] for task in tasks} == {"built for aarch64, this machine is x86_64"}
    assert f"{len(tasks)} not checked" in summary


@pytest.mark.fault("L4")
def test_a_record_with_a_time_that_can_not_be_is_not_used(artifacts, tmp_path):
    tasks = read_tasks(artifacts["tasks"].path)
    found = (best_record(t.workload, seconds=(s,)) for t, s in zip(tasks, (1e-15, 1.0)))  # noqa: B905
    tuned = TuningResult(tuning_report(), {record.workload: record for record in found})
    heard: list[Event] = []
    ctx = Context(
        inputs={}, facts=FACTS, out=tmp_path, work=tmp_path, records=tmp_path,
        emit=heard.append,
    )  # fmt: skip
    believed = BuildStage.of(load(FILE), FILE.parent)._select_trusted_records(ctx, tasks, tuned)
    assert list(believed) == [tasks[1].workload]
    assert [event.message for event in heard if isinstance(event, Warn)] == [
        f"task {tasks[0].name}: 1.0e-15 s, which no processor reaches; its record is not used"
    ]
