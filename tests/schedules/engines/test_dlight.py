import pytest
import tvm
import tvm_ffi
from tvm import te, topi

from autopipe.compiler.library.kernels import find_kernel_refusal
from autopipe.compiler.walls.module import look_through
from autopipe.errors import StageError
from autopipe.schedules import implementations as ways
from autopipe.schedules.engines import default, dlight, static
from autopipe.schedules.engines.fallback import choose_fallback
from autopipe.schedules.implementations.implementation import DIRECT, build_implementations
from autopipe.schedules.replay import replay_schedule
from tests.compiler.cuda_graphs import CONDITIONS, TARGET
from tests.schedules.tasks import CONDITIONS as PROCESSOR
from tests.support.table import each_row


def module(*arguments):
    return tvm.IRModule({"main": te.create_prim_func(list(arguments))})


def conv(groups=1, size=3):
    x, w = te.placeholder((1, 8, 8, 8 * groups)), te.placeholder((size, size, 8, 16 * groups))
    y = topi.nn.conv(x, w, 1, size // 2, 1, groups, "NHWC", "HWIO")
    return module(x, w, topi.nn.relu(y))


def dense():
    x, w = te.placeholder((64, 128)), te.placeholder((32, 128))
    return module(x, w, topi.nn.dense(x, w))


def vector():
    x, w = te.placeholder((1, 128)), te.placeholder((32, 128))
    return module(x, w, topi.nn.dense(x, w))


def pool():
    x = te.placeholder((1, 8, 8, 16))
    return module(x, topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max", layout="NHWC"))


def softmax():
    x = te.placeholder((4, 300))
    return module(x, topi.nn.softmax(x))


def transpose():
    x = te.placeholder((4, 30, 50))
    return module(x, topi.transpose(x, (0, 2, 1)))


def concatenate():
    x, y = te.placeholder((1, 4, 8)), te.placeholder((1, 3, 8))
    return module(x, y, topi.concatenate((topi.nn.relu(x), y), 1))


def shortest():
    """A product of matrices with a minimum of sums; padded with zeros, all of it is 0."""
    x, y = te.placeholder((17, 23)), te.placeholder((23, 37))
    k = te.reduce_axis((0, 23))
    return module(x, y, te.compute((17, 37), lambda i, j: te.min(x[i, k] + y[k, j], axis=k)))


def total():
    x = te.placeholder((1000,))
    return module(x, topi.sum(x))


KINDS = [conv, lambda: conv(3), dense, vector, pool, softmax, transpose, concatenate, total]
IDS = ["conv", "grouped", "dense", "vector", "pool", "softmax", "transpose", "concat", "total"]


@each_row("workload", KINDS)
def test_the_default_of_a_gpu_is_all_threads_and_replays(workload):
    workload = workload()
    planned = default.plan(workload, CONDITIONS)
    assert planned is not None
    assert find_kernel_refusal(planned.module, TARGET) is None
    again = replay_schedule(workload, DIRECT, planned.schedule, CONDITIONS)
    assert tvm_ffi.structural_equal(again, planned.module)


def test_a_rule_that_makes_what_tvm_refuses_is_passed_over(monkeypatch):
    """The rule for reductions takes what it can not split among threads."""
    workload = conv(4, 1)
    refused = []

    def look(module, target):
        why = find_kernel_refusal(module, target)
        refused.append(why is not None)
        return why

    monkeypatch.setattr(dlight, "find_kernel_refusal", look)
    assert dlight.plan(workload, CONDITIONS) is not None
    assert refused == [True, False]


def test_a_function_without_blocks_has_no_rule():
    x = te.placeholder((8,))
    library = te.extern((8,), [x], lambda i, o: tvm.tirx.call_packed("f", i[0], o[0]))
    assert dlight.plan(module(x, library), CONDITIONS) is None


def test_schedules_of_processors_are_never_put_on_a_gpu(monkeypatch):
    workload = conv()
    planned = static.plan(workload, PROCESSOR)
    assert planned is not None
    assert static.plan(workload, CONDITIONS) is None
    monkeypatch.setattr(ways, "load_implementations", lambda: pytest.fail("made for processors"))
    assert list(build_implementations(workload, CONDITIONS)) == [DIRECT]
    monkeypatch.undo()
    with pytest.raises(StageError, match="is not for cuda"):
        replay_schedule(workload, DIRECT, planned.schedule, CONDITIONS)


def test_a_task_falls_to_the_default():
    found = choose_fallback(("static", "default"), dense(), CONDITIONS)
    assert found.engine == "default"
    assert found.planned is not None
    assert find_kernel_refusal(found.planned.module, TARGET) is None


def test_rules_that_pad_with_zeros_are_asked_for_sums_of_products_alone():
    planned = dlight.plan(shortest(), CONDITIONS)
    assert planned is not None
    assert "reindex_pad" not in planned.module.script()
    padded = dlight.plan(dense(), CONDITIONS)
    assert padded is not None
    assert "reindex" in padded.module.script()


def test_a_product_of_one_row_passes_the_walls():
    planned = dlight.plan(vector(), CONDITIONS)
    assert planned is not None
    assert "pragma_vectorize" in planned.module.script()
    look_through(planned.module)
