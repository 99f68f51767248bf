from autopipe.api.last_build import BuildOrigin, RememberedBuild, compare_builds, find_origin
from tests.artifacts.examples import library_task


def build(tasks=(), configuration=None, **actions):
    return RememberedBuild(actions, {task.workload: task for task in tasks}, configuration)


def test_a_stage_is_told_with_what_it_depends_on_and_not_with_what_follows():
    old = build(
        tune={"params": {"trials": 8}, "inputs": {}}, build={"inputs": {"tune": "1"}},
        verify={"inputs": {"build": "1"}},
    )  # fmt: skip
    new = build(
        tune={"params": {"trials": 9}, "inputs": {}}, build={"inputs": {"tune": "2"}},
        verify={"inputs": {"build": "1"}},
    )  # fmt: skip
    since = compare_builds(old, new)
    assert since is not None
    assert since.stages == {"tune": ("params.trials changed from 8 to 9",)}


def test_fields_are_told_whether_or_not_their_stage_ran():
    """What a parameter of a stage says once more is left out."""
    old = build(
        configuration={"verify": {"rtol": 1}, "benchmark": {"repeat": 3}, "package": None},
        benchmark={"params": {"options": {"repeat": 3}, "baseline": 1}},
    )  # fmt: skip
    new = build(
        configuration={"verify": {"rtol": 2}, "benchmark": {"repeat": 4}, "package": None},
        benchmark={"params": {"options": {"repeat": 4}, "baseline": 2}},
    )  # fmt: skip
    since = compare_builds(old, new)
    assert since is not None
    assert since.fields == (
        "benchmark.repeat changed from 3 to 4", "verify.rtol changed from 1 to 2",
    )  # fmt: skip
    assert since.stages == {"benchmark": ("params.baseline changed from 1 to 2",)}


def test_a_result_that_changes_by_itself_is_told():
    old, new = (build(tune={"a": 1}, build={"inputs": {"tune": result}}) for result in "12")
    since = compare_builds(old, new)
    assert since is not None
    assert since.stages == {"build": ("the result of tune changed",)}


def test_tasks_are_compared_by_what_they_compute():
    kept, gone = library_task("kept", "0a"), library_task("gone", "0b", seconds=None)
    faster = library_task("renamed", "0a", seconds=5e-7)
    since = compare_builds(build([kept, gone]), build([faster, library_task("come", "0c")]))
    assert since is not None
    assert [tuple(one.model_dump().values()) for one in since.tasks] == [
        ("renamed", "ansor on direct", "ansor on direct", 1e-6, 5e-7),
        ("come", None, "ansor on direct", None, 1e-6),
        ("gone", "ansor on direct", None, None, None),
    ]  # fmt: skip
    unchanged = compare_builds(build([kept]), build([kept.model_copy(update={"name": "other"})]))
    assert unchanged is not None
    assert unchanged.tasks == ()


def test_without_a_store_or_a_build_nothing_is_remembered(tmp_path):
    made = {"build": "0"}
    assert find_origin(tmp_path, tmp_path / "a.yaml", None, made) == BuildOrigin({}, None)
    (tmp_path / "runs").mkdir()
    assert find_origin(tmp_path, tmp_path / "a.yaml", None, made) == BuildOrigin({}, None)
    assert compare_builds(None, build()) is None
    assert compare_builds(build(), None) is None
