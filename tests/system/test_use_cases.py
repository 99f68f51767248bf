"""The four use cases of the RFC, and the fifth that it wanted: what decides the schedules."""

import json
from pathlib import Path

import pytest

from autopipe.api import flow
from autopipe.pipeline.events import Event, Warn
from autopipe.schedules.policy import PLAIN

FOLDER = Path(__file__).parents[2] / "pipelines" / "use-cases"
PLAIN_LOOPS = {by.engine for by in PLAIN}
BUILT = {
    "fallback-values": {"static", "default"},
    "autotvm-records": {"autotvm", "static", "default", *PLAIN_LOOPS},
    "ansor-records": {"ansor", "default", *PLAIN_LOOPS},
    "mixed": {"autotvm", "ansor", "static", "default", *PLAIN_LOOPS},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One for all: what a case may not use is there, from the others."""
    return tmp_path_factory.mktemp("store")


def built(name, store):
    artifacts = flow.run(
        FOLDER / f"{name}.yaml", store=store, until="build", output=store / "dist",
        overrides=[] if name == "fallback-values" else ["tuning.budget.trials=12"],
    )  # fmt: skip
    library = json.loads((artifacts["build"].path / "library.json").read_text())
    tuned = artifacts.get("tune")
    return library, tuned and json.loads((tuned.path / "tuning.json").read_text())


def test_each_is_documented_and_tested():
    assert {file.stem for file in FOLDER.glob("*.yaml")} == {*BUILT, "extract-tasks"}
    page = (FOLDER.parents[1] / "docs/concepts/policy.md").read_text()
    for file in FOLDER.glob("*.yaml"):
        assert f"pipelines/use-cases/{file.name}" in page


@pytest.mark.parametrize("name", BUILT)
def test_schedules_are_of_those_the_policy_names(store, name):
    library, tuning = built(name, store)
    assert {task["engine"] for task in library["tasks"]} <= BUILT[name]
    assert all(task["checked"] and not task["rejected"] for task in library["tasks"])
    if tuning is None:
        assert library["claimed"]["measured"] == 0.0
        assert {task["reason"] for task in library["tasks"]} >= {"no record"}
        return
    assert library["claimed"]["measured"] == 1.0
    for task in tuning["tasks"]:
        engines = {each["engine"] for each in task["contenders"]}
        assert engines <= BUILT[name]
        measured = {each["engine"]: each["trials"] for each in task["contenders"]}
        assert min(measured["default" if name == "ansor-records" else "static"], 1) == 1


def test_rules_of_the_mix_go_by_the_share_of_time(store):
    _, tuning = built("mixed", store)
    by_share = sorted(tuning["tasks"], key=lambda task: -task["share"])
    assert [task["rule"] == 0 for task in by_share] == [task["share"] >= 0.3 for task in by_share]
    assert by_share[0]["rule"] == 0


def test_tasks_are_extracted_the_simple_ones_too(store):
    tasks = flow.list_tasks(FOLDER / "extract-tasks.yaml", store=store)
    assert len(tasks) >= 4
    assert all(task.dropped is None for task in tasks)
    assert sum(task.share for task in tasks) == pytest.approx(1.0)
    assert any("out_dtype" in op.attributes for task in tasks for op in task.info.ops)


def warned(call, name, *overrides, **options):
    events: list[Event] = []
    call(FOLDER / f"{name}.yaml", overrides=overrides, emit=events.append, **options)
    return [event.message for event in events if isinstance(event, Warn)]


def test_what_matches_no_task_is_told_though_the_tasks_are_cached(store):
    overrides = [
        'tasks.exclude=["nn.conv2d"]',
        "schedules.rules=[{match: {op: sofmax}, engines: []}, {engines: [ansor]}]",
    ]
    first, again = (
        warned(flow.list_tasks, "extract-tasks", *overrides, store=store) for _ in range(2)
    )
    assert first == again
    assert [text.split(":")[0] for text in again] == ["tasks.exclude.0", "schedules.rules.0"]


def test_an_implementation_that_no_task_has_is_told(store):
    rule = "schedules.rules=[{implementations: [winograd4], engines: []}]"
    told = warned(flow.run, "fallback-values", rule, store=store, until="build")
    assert "for it has no winograd4 (schedules.rules.0)" in told[0]
