"""The records beside a lock give back the artifact that they were made of, byte for byte."""

import json
from pathlib import Path

import pytest

from autopipe.artifacts.tuning import TuningResult
from autopipe.errors import LockError
from autopipe.lock.records import format_records, list_task_mismatches, read_records
from autopipe.tasks.op_info import OpInfo
from autopipe.tasks.task import Task
from tests.artifacts.examples import best_record, tuned_task, tuning_report

FILE = Path("demo.records.jsonl")


def task(index: int, workload: str, dropped: str | None = None) -> Task:
    return Task(
        index=index, name=f"task{index}", workload=workload, functions=(f"task{index}",), calls=1,
        info=OpInfo(kind="opaque", ops=()), reductions=1, inputs=(), outputs=(), flops=1.0, bytes=1,
        dropped=dropped,
    )  # fmt: skip


@pytest.fixture
def artifact(tmp_path):
    tasks = [tuned_task(index, workload) for index, workload in enumerate(("cc", "aa", "bb"))]
    records = {workload: best_record(workload) for workload in ("aa", "cc")}
    TuningResult(tuning_report(*tasks), records).write(tmp_path)
    return tmp_path


def text(artifact):
    return format_records(TuningResult.read(artifact))


def test_the_artifact_comes_back_byte_for_byte(artifact, tmp_path):
    again = tmp_path / "again"
    again.mkdir()
    read_records(text(artifact), FILE).write(again)
    for name in ("tuning.json", "records.jsonl"):
        assert (again / name).read_bytes() == (artifact / name).read_bytes()


def test_the_lines_are_sorted_by_workload(artifact):
    lines = [json.loads(line) for line in text(artifact).splitlines()]
    assert lines[0]["version"] == 1
    assert [line["tuning"]["workload"] for line in lines[1:]] == ["aa", "bb", "cc"]
    assert [line["record"] is None for line in lines[1:]] == [False, True, False]


@pytest.mark.fault("C20")
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text[:-20], "demo.records.jsonl:4: edited or cut short"),
        (lambda text: text.replace("\n", "\n<<<<<<< HEAD\n", 1), "demo.records.jsonl:2: a merge"),
        (
            lambda text: text.replace("\n", "\n[1]\n", 1),
            "records.jsonl:2: edited or cut short: not an",
        ),
        (lambda text: text.replace('"version": 1', '"version": 2'), "demo.records.jsonl:1: this"),
        (
            lambda text: text.replace('"tuning"', '"tuned"'),
            "records.jsonl:2: no record of a lock",
        ),
        (lambda _: "", "demo.records.jsonl:1: edited or cut short"),
        (lambda text: text.replace("\n", "\r\n"), "demo.records.jsonl:1: it ends as lines do on"),
    ],
)
def test_damage_is_named_with_its_line(artifact, damage, said):
    with pytest.raises(LockError, match=said):
        read_records(damage(text(artifact)), FILE)


def test_missing_extra_and_stale_tasks_are_each_named(artifact):
    tasks = (task(0, "cc"), task(1, "ee"), task(3, "ff"), task(4, "gg", dropped="simple"))
    assert list_task_mismatches(TuningResult.read(artifact), tasks) == [
        "task task3 (workload ff): missing in the lock",
        "task task2 (workload bb): extra in the lock",
        "task task1: stale, its loops are others now",
    ]


def test_the_same_tasks_fit(artifact):
    assert (
        list_task_mismatches(
            TuningResult.read(artifact), (task(0, "cc"), task(1, "aa"), task(2, "bb"))
        )
        == []
    )


def test_settings_of_dynamic_sizes_are_kept_and_are_no_traces(artifact):
    """They are found with the record of a likely size, and a trace there is refused as anywhere."""
    setting = {"engine": "autotvm", "implementation": "direct", "schedule": '{"knobs": {}}'}
    tuned = TuningResult.read(artifact)
    records = {**tuned.records, "aa": best_record("aa", dynamic_settings={"dd": setting})}
    lines = format_records(TuningResult(tuned.report, records))
    again = read_records(lines, FILE)
    assert format_records(again) == lines
    assert again.records["aa"].dynamic_settings["dd"].schedule == '{"knobs": {}}'
    with pytest.raises(LockError, match="no setting of a template"):
        read_records(lines.replace(r'"{\"knobs\": {}}"', '"[]"'), FILE)


def test_a_setting_of_dynamic_sizes_replaces_the_schedule_and_nothing_else():
    """What a forged one has besides, such as a time that is none, is passed over."""
    setting = {"engine": "autotvm", "implementation": "direct", "schedule": '{"knobs": {}}'}
    forged = {**setting, "seconds": "soon", "workload": 7}
    record = best_record("aa", dynamic_settings={"dd": forged})
    made = record.dynamic_settings["dd"].of(record)
    changed = {name for name in type(record).model_fields
               if getattr(made, name) != getattr(record, name)}  # fmt: skip
    assert changed <= set(setting)
    assert made.schedule == setting["schedule"]
