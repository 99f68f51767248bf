"""What two builds differ in, as a value."""

from dataclasses import replace

import pytest

from autopipe.comparison.build import ABSENT, Change, Time, flatten_document
from autopipe.comparison.difference import Left, compare_builds
from autopipe.comparison.timing import TimingVerdict, judge_times
from autopipe.lock.recognize import FileKind
from tests.comparison.builds import build, latency, task
from tests.support.table import each_row


def test_values_are_named_by_their_way():
    nested = {"a": {"b": 1, "c": {}}, "d": [1, 2], "e": [{"f": None}, {"f": [3]}], "g": {"h.i": 4}}
    assert dict(flatten_document(nested)) == {
        "a.b": 1, "a.c": {}, "d": [1, 2], "e.0.f": None, "e.1.f": [3], "g.h.i": 4,
    }  # fmt: skip


def test_each_field_that_differs_is_named_with_both_values():
    old = build({"configuration": {"same": 1, "gone": 2, "other": 3, "flag": True}})
    new = build({"configuration": {"same": 1, "come": None, "other": [3], "flag": 1}})
    found = compare_builds(old, new)
    assert found.facts["configuration"] == (
        Change("come", ABSENT, None), Change(name="flag", old=True, new=1),
        Change("gone", 2, ABSENT), Change("other", 3, [3]),
    )  # fmt: skip
    assert not found.same


def test_what_a_file_does_not_say_is_not_compared():
    old = build({"size": {"lib.so": 1}})
    new = build({"accuracy": {"verification": "x"}}, (task(),), latency=latency(1))
    found = compare_builds(old, new)
    assert (found.facts, found.tasks, found.latency) == ({}, None, None)
    assert found.same
    assert found.left["size"] is Left.OLD
    assert found.left["tasks"] is found.left["latency"] is found.left["accuracy"] is Left.NEW
    assert found.left["target"] is Left.NEITHER


def test_files_of_two_kinds_are_compared_in_what_both_say():
    old = build(
        {
            "configuration": {"model.path": "m", "model.sha256": "x", "layout": None, "verify": 1},
            "target": {"mcpu": "a", "hardware.l1": 1},
            "sources": {"import.model": "x"},
            "artifacts": {"lib.so": "x", "demo.tar": "y"},
        },
        (task(),),
    )
    new = build(
        {
            "configuration": {"model.sha256": "x", "layout.conv2d": ["NHWC"]},
            "target": {"mcpu": "b", "features": []},
            "sources": {"pipeline": "x"},
            "artifacts": {"lib.so": "x", "demo.tar": "z"},
        },
        (task(schedule=None),),
        kind=FileKind.PACKAGE,
    )
    package = {name: value for name, value in task().decisions.items() if name != "schedule"}
    new = build(
        new.facts,
        tuple(type(each)(each.name, each.workload, package, each.time) for each in new.tasks or ()),
        kind=FileKind.PACKAGE,
    )
    found = compare_builds(old, new)
    assert {topic: [change.name for change in each] for topic, each in found.facts.items()} == {
        "configuration": ["layout", "layout.conv2d"],
        "target": ["mcpu"],
        "artifacts": ["demo.tar"],
    }
    assert found.left["sources"] is Left.APART
    assert found.left["knobs"] is Left.OLD
    assert [each.differs for each in found.tasks or ()] == [False]


def test_a_package_does_not_say_which_knobs_a_task_has():
    plain = task()
    decisions = {name: value for name, value in plain.decisions.items() if name != "schedule"}
    same = type(plain)(plain.name, plain.workload, decisions, plain.time)
    found = compare_builds(build(tasks=(same,)), build(tasks=(same,)))
    assert found.left["knobs"] is Left.NEITHER
    assert "knobs" not in compare_builds(build(tasks=(plain,)), build(tasks=(plain,))).left


@each_row(
    "old, new, verdict",
    [
        (Time(3, 2, 4), Time(1, 0.5, 1.9), TimingVerdict.FASTER),
        (Time(1, 0.5, 1.9), Time(3, 2, 4), TimingVerdict.SLOWER),
        (Time(3, 2, 4), Time(1, 0.5, 2), TimingVerdict.NOISE),
        (Time(1, 0.5, 2), Time(3, 2, 4), TimingVerdict.NOISE),
        (Time(3, 2, 4), Time(3, 2, 4), TimingVerdict.NOISE),
        (Time(3, 1, 4), Time(2, 2, 2), TimingVerdict.NOISE),
        (Time(3), Time(1, 1, 1), TimingVerdict.NO_SPREAD),
        (Time(3, 3, 3), Time(1), TimingVerdict.NO_SPREAD),
    ],
)
def test_only_spreads_apart_are_a_claim(old, new, verdict):
    assert judge_times(old, new, elsewhere=False) is verdict
    assert judge_times(old, new, elsewhere=True) is TimingVerdict.ELSEWHERE
    assert verdict.conclusive == (verdict in {TimingVerdict.FASTER, TimingVerdict.SLOWER})


def verdicts(old, new):
    return {row.contender: row.verdict for row in compare_builds(old, new).latency or ()}


def test_the_build_comes_first_and_is_judged_by_its_spread():
    faster = compare_builds(build(latency=latency(3)), build(latency=latency(1)))
    assert [row.contender for row in faster.latency or ()] == ["autopipe", "onnxruntime"]
    assert verdicts(faster.old, faster.new) == {
        "autopipe": TimingVerdict.FASTER, "onnxruntime": TimingVerdict.NOISE,
    }  # fmt: skip
    assert not faster.same
    assert compare_builds(build(latency=latency(3)), build(latency=latency(2.9))).same


def test_a_machine_on_which_the_competitor_moved_too_proves_nothing():
    found = compare_builds(
        build(latency=latency(3, competitor=6)), build(latency=latency(1, competitor=2))
    )
    assert {row.verdict for row in found.latency or ()} == {TimingVerdict.UNSTEADY}
    assert found.same


def test_a_competitor_of_another_version_may_move():
    found = verdicts(
        build(latency=latency(3, competitor=6)),
        build(latency=latency(1, competitor=2, version="1.32")),
    )
    assert found == {"autopipe": TimingVerdict.FASTER, "onnxruntime": TimingVerdict.FASTER}


def test_times_of_two_machines_are_not_judged():
    old = build(None, (task(seconds=3),), latency=latency(3), machine={"cpu": "a"})
    new = build(None, (task(seconds=1),), latency=latency(1), machine={"cpu": "b"})
    found = compare_builds(old, new)
    assert {row.verdict for row in found.latency or ()} == {TimingVerdict.ELSEWHERE}
    assert [each.verdict for each in found.tasks or ()] == [TimingVerdict.ELSEWHERE]
    assert found.same


@pytest.mark.fault("N5")
@pytest.mark.parametrize("which", [0, 1])
def test_times_of_a_busy_machine_are_not_judged(which):
    builds = [build(latency=latency(1.0)), build(latency=latency(9.0))]
    busy = {
        name: replace(each, disturbed=True) for name, each in (builds[which].latency or {}).items()
    }
    builds[which] = replace(builds[which], latency=busy)
    found = compare_builds(*builds)
    assert {row.verdict for row in found.latency or ()} == {TimingVerdict.DISTURBED}
    assert not any(row.verdict.conclusive for row in found.latency or ())


@pytest.mark.parametrize("name", ["lib.so", "demo.tar"])
def test_the_same_library_is_no_slower(name):
    sides = [
        build({"artifacts": {name: "x", "other": other}}, latency=latency(seconds))
        for seconds, other in ((1, "y"), (9, "z"))
    ]
    (found,) = [row for row in compare_builds(*sides).latency or () if row.contender == "autopipe"]
    assert found.verdict is TimingVerdict.SAME_CODE
    sides[1] = build({"artifacts": {name: "z"}}, latency=latency(9))
    (found,) = [row for row in compare_builds(*sides).latency or () if row.contender == "autopipe"]
    assert found.verdict is not TimingVerdict.SAME_CODE
