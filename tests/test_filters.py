import pytest

from autopipe import config
from autopipe.filters import apply_filters
from autopipe.op_info import Op, OpInfo
from autopipe.task import Task
from autopipe.tensor import Tensor

CONV = OpInfo(kind="out_elementwise_fusable", ops=(Op(name="nn.conv2d"),))


def task(**changes):
    tensor = Tensor(shape=(1, 8), dtype="float32")
    values = {
        "index": 0, "name": "fused_conv2d", "workload": "0" * 16, "functions": ("fused_conv2d",),
        "calls": 1, "info": CONV, "reductions": 1,
        "inputs": (tensor,), "outputs": (tensor,), "flops": 1e6, "bytes": 64, "dropped": None,
    }  # fmt: skip
    return Task(**(values | changes))


def reason(changes, **tasks):
    return apply_filters([task(**changes)], config.Tasks(**tasks))[0].dropped


def test_a_reduction_with_work_is_kept():
    assert reason({}) is None


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"reductions": 0, "info": OpInfo(kind="injective")}, "simple"),
        ({"inputs": (Tensor(shape=(-1, 8), dtype="float32"),)}, "dynamic"),
        ({"outputs": (Tensor(shape=(-1,), dtype="float32"),)}, "dynamic"),
        ({"flops": 99_999.0}, "small"),
    ],
)
def test_a_dropped_task_says_why(changes, word):
    assert reason(changes).startswith(word)


def test_work_at_the_limit_is_kept():
    assert reason({"flops": 1e5}) is None
    assert reason({"flops": 5.0}, heuristics={"min_flops": 0}) is None


def test_include_simple_task_brings_back_what_only_moves_data():
    simple = {"reductions": 0, "info": OpInfo(kind="injective"), "flops": 0.0}
    assert reason(simple, include_simple_task=True) is None
    assert reason({"flops": 1.0}, include_simple_task=True).startswith("small")


def test_opaque_functions_are_never_tasks():
    opaque = {"reductions": 0, "info": OpInfo(kind="opaque")}
    assert reason(opaque, include_simple_task=True).startswith("opaque")
    assert reason(opaque).startswith("opaque")


def test_order_and_number_of_tasks_stay():
    tasks = [task(index=i, flops=float(10 ** (2 * i))) for i in range(5)]
    kept = apply_filters(tasks, config.Tasks())
    assert [t.index for t in kept] == [0, 1, 2, 3, 4]
    assert [t.dropped is None for t in kept] == [False, False, False, True, True]
