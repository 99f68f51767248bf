"""What a lock holds, and how it is compared with what is there now."""

import json

import pytest

from autopipe.artifacts.tuning import TuningResult
from autopipe.lock.outline import LockOutline, list_differences
from autopipe.store.artifact import Artifact, Kind
from autopipe.store.content import TreeDigests
from autopipe.tasks.op_info import Op, OpInfo
from autopipe.tasks.task import Task
from tests.artifacts.examples import best_record, library, library_task, tuning_report
from tests.lock.examples import TARGET

WORKLOADS = {"dense": "aa", "searched": "bb", "softmax": "cc"}

OUTLINE = LockOutline(
    pipeline="demo", configuration={"tuning": {"seed": 0}}, sources={"import.model": "ab" * 32},
    target=TARGET, stages={"tune": 3},
    versions={"tvm": {"tvm": "0.27"}, "libraries": {"openblas": "0.3.34", "other": "1"}},
)  # fmt: skip


def task(index: int, name: str) -> Task:
    return Task(
        index=index, name=name, workload=WORKLOADS[name], functions=(name,), calls=2,
        info=OpInfo(kind="opaque", ops=(Op(name=f"nn.{name}"),)), reductions=1, inputs=(),
        outputs=(), flops=1.0, bytes=1, dropped=None,
    )  # fmt: skip


@pytest.fixture
def contents(tmp_path):
    for name in ("fingerprints", "tmp"):
        (tmp_path / name).mkdir()
    return TreeDigests(tmp_path / "fingerprints", tmp_path / "tmp")


@pytest.fixture
def artifacts(tmp_path):
    """A build of three tasks: a template, a trace, and a fallback."""
    folders = {name: tmp_path / name for name in ("tasks", "tune", "build", "package")}
    for folder in folders.values():
        folder.mkdir()
    tasks = [task(index, name).model_dump(mode="json") for index, name in enumerate(WORKLOADS)]
    (folders["tasks"] / "tasks.json").write_text(json.dumps(tasks))
    schedules = {
        "aa": '{"template": "contraction", "knobs": {"rows": 8}}',
        "bb": '[["split"], []]',
    }
    records = {
        workload: best_record(workload, schedule=text, seconds=(3e-6, 1e-6, 2e-6), trials=7)
        for workload, text in schedules.items()
    }
    TuningResult(tuning_report(), records).write(folders["tune"])
    library(
        library_task("dense", "aa", engine="autotvm", implementation="openblas"),
        library_task("searched", "bb", engine="autotvm"),
        library_task("softmax", "cc", engine="autotvm", seconds=None),
    ).write(folders["build"])
    for name in ("lib.so", "weights.safetensors"):
        (folders["build"] / name).write_bytes(name.encode())
    (folders["package"] / "demo.tar").write_bytes(b"tar")
    kinds = {"tasks": Kind.TASKS, "tune": Kind.RECORDS, "build": Kind.LIBRARY}
    return {
        name: Artifact(kinds.get(name, Kind.PACKAGE), "00" * 32, folder)
        for name, folder in folders.items()
    }


def test_a_lock_names_who_won_each_task_and_what_was_made(artifacts, contents):
    lock = OUTLINE.to_lock(artifacts, contents)
    dense, searched, softmax = lock.tasks
    assert dense.ops == ("nn.dense",)
    assert dense.schedule == {"template": "contraction", "knobs": {"rows": 8}}
    assert dense.microseconds == (1.0, 2.0, 3.0)
    assert (dense.calls, dense.trials) == (2, 7)
    assert str(searched.schedule).startswith("trace ")
    assert (softmax.schedule, softmax.microseconds, softmax.trials) == (None, None, 0)
    assert lock.artifacts.keys() == {"lib.so", "weights.safetensors", "demo.tar"}


def test_only_libraries_that_the_build_calls_are_locked(artifacts, contents):
    del artifacts["tune"]
    lock = OUTLINE.to_lock(artifacts, contents)
    assert lock.versions["libraries"] == {"openblas": "0.3.34"}
    assert OUTLINE.differences(lock) == []
    without = OUTLINE._replace(versions={"tvm": {"tvm": "0.27"}, "libraries": {}})
    assert without.differences(lock) == [
        'versions.libraries.openblas: locked "0.3.34", now null'
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"configuration": {"tuning": {"seed": 1}}}, "configuration.tuning.seed: locked 0, now 1"),
        ({"configuration": {"tuning": None}}, 'configuration.tuning: locked {"seed": 0}, now null'),
        ({"sources": {"import.model": "cd" * 32}}, "locked abababababab, now cdcdcdcdcdcd"),
        ({"target": {**TARGET, "mcpu": "skylake"}}, 'target.mcpu: locked "znver4", now "skylake"'),
        ({"stages": {"tune": 4}}, "stages.tune: locked 3, now 4"),
        ({"pipeline": "other"}, 'pipeline: locked "demo", now "other"'),
        ({"versions": {"tvm": {"tvm": "0.28"}}}, 'versions.tvm.tvm: locked "0.27", now "0.28"'),
    ],
)
def test_whatever_decides_the_bytes_is_compared(artifacts, contents, changed, said):
    del artifacts["tune"]
    lock = OUTLINE.to_lock(artifacts, contents)
    found = OUTLINE._replace(**changed).differences(lock)
    assert any(said in line for line in found), found


def test_entries_of_lists_are_named_by_their_place():
    assert list_differences({"a": [{"x": 1}, {"x": 2}]}, {"a": [{"x": 1}, {"x": 3}]}) == [
        "a.1.x: locked 2, now 3"
    ]
