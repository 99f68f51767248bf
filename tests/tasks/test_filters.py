import pytest

from autopipe.config.tasks import Heuristics, Tasks
from autopipe.tasks.filters import FILTERS, apply_filters, count_dropped, explain_no_tasks
from autopipe.tasks.filters.unmatched import list_unmatched
from autopipe.tasks.op_info import Op, OpInfo
from autopipe.tasks.task import Task
from autopipe.tasks.tensor import Tensor
from tests.support.table import each_row

CONV = OpInfo(kind="out_elementwise_fusable", ops=(Op(name="nn.conv2d", attributes={"groups": 1}),))
SIMPLE = {"reductions": 0, "info": OpInfo(kind="injective", ops=(Op(name="reshape"),)), "flops": 0}
SHAPE = Tensor(shape=(4,), dtype="int64")
OPAQUE = {"reductions": 0, "info": OpInfo(kind="opaque"), "opaque": True}


def task(**changes):
    tensor = Tensor(shape=(1, 8), dtype="float32")
    values = {
        "index": 0, "name": "fused_conv2d", "workload": "0" * 16, "functions": ("fused_conv2d",),
        "calls": 1, "info": CONV, "reductions": 1,
        "inputs": (tensor,), "outputs": (tensor,), "flops": 1e6, "bytes": 64, "share": 0.5,
        "dropped": None,
    }  # fmt: skip
    return Task(**(values | changes))


def reason(changes, **tasks):
    return apply_filters([task(**changes)], Tasks.model_validate(tasks))[0].dropped


def computing(name, **changes):
    return {"info": OpInfo(kind="opaque", ops=(Op(name=name, **changes),))}


def test_a_reduction_with_work_is_kept():
    assert reason({}) is None


@each_row(
    "changes, says",
    [
        (SIMPLE, "simple: no reduction (include_simple_task)"),
        ({"inputs": (Tensor(shape=(-1, 8), dtype="float32"),)}, "dynamic: dimension 0 of input 0"),
        ({"outputs": (Tensor(shape=(4, -1), dtype="float32"),)}, "dynamic: dimension 1 of output"),
        (
            computing("reshape", outputs=(Tensor(shape=(-1,), dtype="int64"),)),
            "dynamic: dimension 0 of reshape is symbolic",
        ),
        ({"sizes": 1}, "dynamic: symbolic sizes as arguments: 1"),
        ({"sizes": 2, "inputs": (), "outputs": (SHAPE,)}, "dynamic: it only computes shapes"),
        ({"sizes": 2, "outputs": (SHAPE,)}, "dynamic: symbolic sizes as arguments: 2"),
        (
            {"sizes": 2, "inputs": (), "outputs": (Tensor(shape=(-1,), dtype="int64"),)},
            "dynamic: dimension 0 of output 0 is symbolic",
        ),
        ({"likely": "1" * 16}, "dynamic: no task at specialized sizes is the same"),
        ({"likely": "0" * 16}, "dynamic: at specialized sizes it is task 0"),
        ({"flops": 9_999.0}, "small: 9999 FLOPs < 10000"),
        ({"flops": 512.0}, "small: 512 FLOPs < 10000"),
        (OPAQUE, "opaque: no schedule can see into its loops"),
        (computing("scatter_nd"), "opaque: no schedule can change scatter_nd"),
        (computing("vision.all_class_non_max_suppression"), "opaque: no schedule can change vis"),
        ({**SIMPLE, "idle": True}, "idle: it only copies or stores constants"),
        ({"outputs": (Tensor(shape=(0, 8), dtype="float32"),)}, "idle: its outputs have no ele"),
    ],
)
def test_a_dropped_task_says_why(changes, says):
    assert (reason(changes) or "").startswith(says)


@pytest.mark.parametrize(
    ("changes", "heuristics"),
    [
        ({"flops": 5.0}, {"min_flops": 0}),
        ({"inputs": (Tensor(shape=(-1, 8), dtype="float32"),)}, {"drop_dynamic": False}),
        (OPAQUE, {"drop_opaque": False, "min_flops": 0}),
        ({"idle": True}, {"drop_idle": False}),
        ({**OPAQUE, "flops": 0.0}, None),
    ],
)
def test_each_heuristic_can_be_switched_off(changes, heuristics):
    assert reason(changes) is not None
    assert reason(changes, heuristics=heuristics) is None


def test_work_at_the_limit_is_kept():
    assert reason({"flops": 1e4}) is None
    assert reason({}, heuristics={"min_bytes": 64, "min_share": 0.5}) is None


@pytest.mark.parametrize(
    ("heuristics", "says"),
    [
        ({"min_bytes": 65}, "light: 64 bytes < 65"),
        ({"min_share": 0.6}, "minor: 50.000% of the estimated time < 60.000%"),
    ],
)
def test_a_limit_that_is_not_reached_is_told_with_its_numbers(heuristics, says):
    assert reason({}, heuristics=heuristics) == says


def test_include_simple_task_brings_back_what_only_moves_data():
    assert reason(SIMPLE, include_simple_task=True) is None
    small = reason({"flops": 1.0}, include_simple_task=True)
    assert small == "small: 1 FLOPs < 10000"
    assert reason(OPAQUE, include_simple_task=True) == reason(OPAQUE)


def test_of_the_simple_ones_those_of_few_ops_are_dropped():
    section = {"include_simple_task": True, "heuristics": {"min_injective_ops": 2}}
    assert reason(SIMPLE, **section) == "short: 1 injective op < 2"
    two = OpInfo(kind="injective", ops=(Op(name="reshape"), Op(name="add")))
    assert reason({**SIMPLE, "info": two}, **section) is None
    assert reason({}, **section) is None


def test_without_heuristics_only_the_simple_ones_are_dropped():
    assert reason(SIMPLE, heuristics=None) == reason(SIMPLE)
    assert reason(SIMPLE, heuristics=None, include_simple_task=True) is None


@each_row(
    "pattern, kept",
    [
        ("nn.conv*", True),
        ("matmul", False),
        ({"kind": "out_elementwise_fusable"}, True),
        ({"attributes": {"groups": 2}}, False),
        ({"shape": [1, "..8"], "dtype": "float32"}, True),
        ({"dtype": "float16"}, False),
        ({"share": 0.4}, True),
        ({"share": 0.6}, False),
    ],
)
def test_a_pattern_includes_or_excludes(pattern, kept):
    told = "not included: tasks.include does not match it"
    assert reason({}, include=[pattern]) == (None if kept else told)
    excluded = reason({}, exclude=["other", pattern])
    assert (excluded or "").startswith("excluded: tasks.exclude.1, ") == kept


def test_the_heaviest_are_chosen_of_what_the_other_filters_leave():
    shares = [0.1, 0.4, 0.2, 0.3]
    tasks = [
        task(index=i, share=share, **(SIMPLE if i == 1 else {})) for i, share in enumerate(shares)
    ]
    section = Tasks.model_validate({"heuristics": {"heaviest": 2}})
    found = [each.dropped for each in apply_filters(tasks, section)]
    assert found[0] == "not among the heaviest: number 3 of 3 by share, 2 are kept"
    assert found[1] == reason(SIMPLE)
    assert found[2:] == [None, None]


def test_order_and_number_of_tasks_stay():
    tasks = [task(index=i, flops=float(10 ** (2 * i))) for i in range(5)]
    kept = apply_filters(tasks, Tasks())
    assert [t.index for t in kept] == [0, 1, 2, 3, 4]
    assert [t.dropped is None for t in kept] == [False, False, True, True, True]


def test_where_nothing_is_left_each_filter_says_how_much_it_took_and_what_would_help():
    tasks = apply_filters(
        [task(index=0, **SIMPLE), task(index=1, flops=1.0), task(index=2, flops=2.0)],
        Tasks(),
    )
    assert count_dropped(tasks) == {"small": 2, "simple": 1}
    assert explain_no_tasks(tasks) == (
        "tasks: none of 3 is left: small drops 2 (tasks.heuristics.min_flops: 0 keeps them), "
        "simple drops 1 (tasks.include_simple_task: true keeps them); "
        "or accept it with tasks.allow_empty: true"
    )
    assert "the model has none" in explain_no_tasks([])


def test_each_filter_has_a_name_of_its_own_and_a_remedy_in_the_grammar():
    assert len({kind.name for kind in FILTERS}) == len(FILTERS)
    fields = {f"tasks.{name}" for name in Tasks.model_fields}
    fields |= {f"tasks.heuristics.{name}" for name in Heuristics.model_fields}
    for kind in FILTERS:
        assert any(word.rstrip(":") in fields for word in kind.remedy.split())


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("nn.conv3d", "tasks.include.0: nn.conv3d matches no task; did you mean nn.conv2d?"),
        ("xyz", "tasks.include.0: xyz matches no task; the tasks have nn.conv2d"),
        (
            {"op": "nn.conv2d", "dtype": "int8"},
            "tasks.include.0: {op: nn.conv2d, dtype: int8} matches no task; none with nn.conv2d fi",
        ),
        ({"shape": ["9.."]}, "tasks.include.0: {shape: [9..]} matches no task"),
        ("nn.conv2d", None),
    ],
)
def test_a_pattern_that_matches_nothing_is_told(pattern, says):
    section = Tasks.model_validate({"include": [pattern]})
    found = next(list_unmatched([task()], section), None)
    assert found is None if says is None else str(found).startswith(says)


def test_patterns_of_exclude_are_told_too():
    section = Tasks.model_validate({"exclude": ["nn.conv2d", "softmax"]})
    (found,) = list_unmatched([task()], section)
    assert found.startswith("tasks.exclude.1: softmax matches no task")
