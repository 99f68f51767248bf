"""Which task is which."""

from autopipe.comparison.build import ABSENT, Change
from autopipe.comparison.matching import match_tasks
from autopipe.comparison.timing import TimingVerdict
from tests.comparison.builds import KNOBS, task


def compared(old, new, *, shared=False, same_compiler=False):
    return match_tasks(old, new, shared=shared, elsewhere=False, same_compiler=same_compiler)


def test_tasks_come_and_go():
    found = compared([task("a", "1"), task("b", "2")], [task("c", "3"), task("a", "1")])
    assert [(each.task.name, each.old is None, each.new is None) for each in found] == [
        ("c", True, False), ("a", False, False), ("b", False, True),
    ]  # fmt: skip
    assert [each.differs for each in found] == [True, False, True]


def test_the_workload_counts_before_the_name():
    found = compared([task("a", "1"), task("b", "2")], [task("b", "1"), task("a", "2")])
    assert [each.changes for each in found] == [
        (Change("name", "a", "b"),), (Change("name", "b", "a"),),
    ]  # fmt: skip


def test_equal_workloads_are_told_apart_by_name():
    found = compared([task("a", "1"), task("b", "1")], [task("b", "1"), task("a", "1")])
    assert [each.differs for each in found] == [False, False]


def test_one_task_is_never_two():
    found = compared([task("a", "1")], [task("a", "1"), task("a", "1")])
    assert [each.old is None for each in found] == [False, True]


def test_other_loops_of_one_name_are_the_same_task_if_the_ops_are():
    (found,) = compared([task("a", "1", ops=["x"])], [task("a", "2", ops=["x"])])
    assert found.changes == (Change("workload", "1", "2"),)
    assert found.verdict is TimingVerdict.OTHER_LOOPS
    assert len(compared([task("a", "1", ops=["x"])], [task("a", "2", ops=["y"])])) == 2


def test_a_knob_is_one_change():
    knobs = {**KNOBS, "knobs": {"rows": 16, "outer": "columns"}}
    (found,) = compared([task()], [task(schedule=knobs)])
    assert found.changes == (Change("schedule.knobs.rows", 8, 16),)


def test_another_template_is_one_change():
    other = {"template": "window", "version": 1, "knobs": {"width": 4}}
    (found,) = compared([task()], [task(schedule=other)])
    assert found.changes == (Change("schedule", KNOBS, other),)
    (found,) = compared([task()], [task(schedule="trace 0123456789ab")])
    assert found.changes == (Change("schedule", KNOBS, "trace 0123456789ab"),)


def test_only_what_both_say_counts_where_they_are_of_two_kinds():
    bare = type(task())("dense", "0f", {"engine": "static"}, None)
    (found,) = compared([task()], [bare], shared=True)
    assert found.changes == (Change("engine", "autotvm", "static"),)
    assert found.verdict is None
    (found,) = compared([task(workload="1", ops=["x"])], [bare], shared=True)
    assert Change("workload", "1", "0f") in found.changes, "a package does not tell of ops"
    (found,) = compared([task()], [bare])
    assert Change("implementation", "direct", ABSENT) in found.changes


def test_a_time_alone_is_a_difference_only_beyond_the_noise():
    (found,) = compared([task(seconds=1)], [task(seconds=1.1)])
    assert (found.verdict, found.differs) == (TimingVerdict.NOISE, False)
    (found,) = compared([task(seconds=1)], [task(seconds=3)])
    assert (found.verdict, found.differs) == (TimingVerdict.SLOWER, True)


def test_equal_schedules_of_equal_loops_are_no_slower():
    slower = [task(seconds=1)], [task(seconds=3)]
    (found,) = compared(*slower, same_compiler=True)
    assert (found.verdict, found.differs) == (TimingVerdict.SAME_CODE, False)
    (found,) = compared([task(seconds=1)], [task(seconds=3, schedule="x")], same_compiler=True)
    assert found.verdict is TimingVerdict.SLOWER
