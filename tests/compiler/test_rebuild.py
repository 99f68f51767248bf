import numpy as np
import pytest
from tvm import relax

from autopipe.compiler import lowering, tasks
from autopipe.compiler.loops.code_equality import is_same_code
from autopipe.tasks.op_info import Literal, Parameter, Result
from tests.compiler import graphs
from tests.compiler.rebuild import RebuildError, rebuild
from tests.support.table import each_row

op, nn = relax.op, relax.op.nn


def only_task(build, *shapes, dtype="float32"):
    """Lower a function of tensors of these shapes; return its one task and its PrimFunc."""
    params = [relax.Var(f"x{i}", relax.TensorType(s, dtype)) for i, s in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            results = build(builder.emit, *params)
            many = results if isinstance(results, tuple) else (results,)
            out = [builder.emit_output(each) for each in many]
        builder.emit_func_output(out[0] if len(out) == 1 else relax.Tuple(out))
    (task,), modules = tasks.extract_tasks(lowering.lower(builder.get(), graphs.TARGET))
    return task, modules[task.workload]["main"]


def again(task, info=None):
    return rebuild(info or task.info, task.inputs, graphs.TARGET)


def convolution(emit, x, kernel, bias):
    y = emit(
        nn.conv2d(
            x, kernel, strides=(2, 1), padding=(1, 2, 0, 3), dilation=(1, 2), groups=2,
            data_layout="NHWC", kernel_layout="HWIO",
        )
    )  # fmt: skip
    return nn.relu(emit(op.add(y, bias)))


CONVOLUTION = convolution, (1, 9, 9, 4), (3, 3, 2, 4), (4,)


@each_row(
    "build, shapes",
    [
        (convolution, CONVOLUTION[1:]),
        (lambda _, x: op.add(x, x), [(3, 4)]),
        (lambda e, x: op.exp(e(op.add(x, x))), [(3, 4)]),
        (lambda e, x, y: op.tanh(e(op.subtract(y, x))), [(3, 4), (3, 4)]),
        (lambda e, x: op.concat([x, e(op.tanh(x)), x], 1), [(3, 4)]),
        (lambda e, x: op.concat(e(op.split(x, 2, 0)), 1), [(4, 3)]),
        (lambda e, x: op.subtract(*(e(op.split(x, 2, 0))[i] for i in (1, 0))), [(4, 3)]),
        (lambda e, x: op.abs(e(op.split(x, [1, 3], 0))[1]), [(4, 3)]),
        (lambda e, x: ((pair := e(op.split(x, 2, 0)))[1], pair[0]), [(4, 3)]),
        (lambda e, x: ((pair := e(op.split(e(op.tanh(x)), 2, 0)))[1], pair[0]), [(4, 3)]),
        (lambda _, x: nn.pad(x, [0, 1, 0, 0], "constant", float("-inf")), [(3, 4)]),
        (lambda e, x: op.multiply(e(op.full_like(x, relax.const(2.0))), x), [(9, 9)]),
        (lambda _, x: op.where(relax.const(np.eye(3, dtype="bool")), x, x), [(3, 3)]),
        (lambda _, x: op.maximum(x, relax.const(float("-inf"))), [(3, 4)]),
        (lambda _, x: op.strided_slice(x, [1, 0], [3, 0], [0, 2], [-2, 1]), [(3, 4)]),
        (lambda _, x: op.reshape(x, (2, -1)), [(3, 4)]),
        (lambda _, x: op.clip(x, -1, 6), [(3, 4)]),
        (lambda _, x: op.mean(x, [-1], keepdims=True), [(3, 4)]),
    ],
)
def test_a_function_is_made_again(build, shapes):
    task, function = only_task(build, *shapes)
    assert is_same_code(function, again(task))


@pytest.mark.parametrize("both", [False, True])
def test_one_op_fused_with_taking_a_part_of_a_tuple_is_made_again(both):
    x, w = (relax.Var(n, relax.TensorType(s, "float32")) for n, s in (("x", (4, 7)), ("w", (7,))))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            pair = builder.emit(op.split(x, [1], 0))
            first, second = (builder.emit(relax.TupleGetItem(pair, i)) for i in (0, 1))
            total = builder.emit(op.add(second if both else w, second))
            out = [builder.emit_output(each) for each in (first, total)]
        builder.emit_func_output(relax.Tuple(out))
    found, modules = tasks.extract_tasks(lowering.lower(builder.get(), graphs.TARGET))
    assert [task.info.names for task in found] == [("split",), ("add",)]
    assert all(is_same_code(modules[task.workload]["main"], again(task)) for task in found)


def test_a_fold_that_puts_a_constant_in_place_of_a_name_is_followed():
    table = relax.const(np.arange(192, dtype="float32").reshape(1, 3, 8, 8))

    def build(emit, x):
        return op.multiply(emit(op.exp(x)), emit(op.exp(table)))

    task, function = only_task(build, (1, 3, 8, 8))
    assert task.info.names == ("exp", "multiply")
    assert is_same_code(function, again(task))


ATTRIBUTES = {
    "strides": [1, 2],
    "padding": [2, 1, 3, 0],
    "dilation": [2, 1],
    "groups": 1,
    "data_layout": "NWHC",
    "kernel_layout": "IHWO",
}


def changed(info, index, **update):
    ops = list(info.ops)
    ops[index] = ops[index].model_copy(update=update)
    return info.model_copy(update={"ops": tuple(ops)})


def proved(task, function, info):
    try:
        return is_same_code(function, again(task, info))
    except (RebuildError, RuntimeError):
        return False


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_every_wrong_attribute_is_noticed(name):
    task, function = only_task(*CONVOLUTION)
    told = task.info.ops[0].attributes
    assert told[name] != ATTRIBUTES[name]
    wrong = changed(task.info, 0, attributes={**told, name: ATTRIBUTES[name]})
    assert not proved(task, function, wrong)


def test_wrong_dataflow_is_noticed():
    def build(emit, x, y):
        return op.divide(emit(op.exp(x)), emit(op.abs(emit(op.subtract(x, y)))))

    task, function = only_task(build, (3, 4), (3, 4))
    info = task.info
    assert info.names == ("exp", "subtract", "abs", "divide")
    assert proved(task, function, info)
    for index, arguments in ((1, (1, 0)), (3, (1, 0))):
        old = info.ops[index].arguments
        swapped = changed(info, index, arguments=tuple(old[i] for i in arguments))
        assert not proved(task, function, swapped)
    assert not proved(task, function, changed(info, 2, arguments=(Parameter(parameter=0),)))
    assert not proved(task, function, changed(info, 2, name="negative"))
    assert not proved(task, function, info.model_copy(update={"results": (Result(op=2),)}))


def test_wrong_order_of_results_is_noticed():
    task, function = only_task(lambda e, x: ((p := e(op.split(x, [1], 0)))[0], p[1]), (4, 3))
    assert proved(task, function, task.info)
    turned = task.info.model_copy(update={"results": task.info.results[::-1]})
    assert not proved(task, function, turned)


def test_a_wrong_number_is_noticed():
    task, function = only_task(lambda _, x: op.add(x, relax.const(2.0)), (3, 4))
    wrong = Literal(value=3.0, dtype="float32", shape=())
    arguments = (task.info.ops[0].arguments[0], wrong)
    assert not proved(task, function, changed(task.info, 0, arguments=arguments))
