import tvm
from tvm import relax, te, topi

from autopipe.compiler import lowering, tasks
from autopipe.compiler.graph.calls import find_weight_arguments
from autopipe.compiler.recurrence import plain
from autopipe.compiler.recurrence.form import Activation, Direction, Recurrence
from autopipe.compiler.tasks import Workload
from autopipe.tasks.op_info import OpInfo
from tests.compiler import graphs


def chain(dtype="float32"):
    """Two equal dense layers, one other, and a softmax."""
    x = relax.Var("x", relax.TensorType((4, 16), dtype))
    shapes = [(16, 16), (16, 16), (16, 8)]
    params = [relax.Var(f"w{i}", relax.TensorType(s, dtype)) for i, s in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", [x, *params]):
        with builder.dataflow():
            y = x
            for weight in params:
                y = builder.emit(relax.op.nn.relu(relax.op.matmul(y, weight)))
            out = builder.emit_output(relax.op.nn.softmax(y))
        builder.emit_func_output(out)
    return builder.get()


def extract(module):
    optimized = lowering.optimize(module, 1, {}, graphs.TARGET, print)
    lowered = lowering.lower(optimized.module, graphs.TARGET)
    return tasks.extract_tasks(lowered)


def test_equal_workloads_are_one_task_that_is_called_twice():
    found, workloads = extract(chain())
    assert [(t.info.names, t.calls) for t in found] == [
        (("matmul", "nn.relu"), 2),
        (("matmul", "nn.relu"), 1),
        (("nn.softmax",), 1),
    ]
    assert set(workloads) == {t.workload for t in found}


def test_a_task_states_shapes_work_and_kind():
    task = extract(chain())[0][0]
    assert [t.shape for t in task.inputs] == [(4, 16), (16, 16)]
    assert [t.shape for t in task.outputs] == [(4, 16)]
    assert task.flops == 2 * 4 * 16 * 16 + 4 * 16
    assert task.bytes == 4 * (4 * 16 + 16 * 16 + 4 * 16)
    assert (task.info.kind, task.reductions, task.dropped) == ("out_elementwise_fusable", 1, None)


def test_dtype_is_part_of_a_workload_and_names_are_not():
    single, double = extract(chain())[1], extract(chain("float64"))[1]
    assert not set(single) & set(double)
    function = next(iter(single.values()))["main"]
    renamed = function.with_attr("global_symbol", "other").with_attr("op_pattern", 8)
    assert tasks.make_workload(renamed).identity == tasks.make_workload(function).identity


def test_different_workloads_with_one_hash_stay_apart():
    one, other = (Workload("f" * 16, module) for module in list(extract(chain())[1].values())[:2])
    moved = tasks._resolve_collision(other, {one.identity: one})
    assert (moved.identity, moved.module) == ("0" * 16, other.module)
    assert tasks._resolve_collision(one, {one.identity: one}).identity == one.identity


def test_functions_without_blocks_are_tasks_without_reductions():
    function = tvm.tirx.PrimFunc([], tvm.tirx.Evaluate(0))
    assert tasks._list_blocks(tvm.IRModule({"main": function})) == []


def described(tensors):
    """The task of a function that says nothing of its ops."""
    found = tasks.make_workload(te.create_prim_func(tensors))
    return tasks.make_task(0, found, ["main"], OpInfo(kind="opaque"))


def test_a_function_without_op_information_writes_what_it_stores_to():
    x, w = te.placeholder((8, 4), "float32"), te.placeholder((4, 6), "float32")
    found = described([x, w, topi.matmul(x, w)])
    assert [t.shape for t in found.inputs] == [(8, 4), (4, 6)]
    assert [t.shape for t in found.outputs] == [(8, 6)]
    first, second = te.compute((8,), lambda i: x[i, 0]), te.compute((8,), lambda i: x[i, 1])
    assert len(described([x, first, second]).outputs) == 2


def test_a_choice_counts_as_an_operation():
    x = te.placeholder((8, 64), "float32")
    assert described([x, topi.argmax(x, axis=1)]).flops == 8 * 64
    assert described([x, topi.nn.relu(x)]).flops == 8 * 64
    assert described([x, topi.transpose(x)]).flops == 0


RAGGED = """
# from tvm.script import tirx as T

@T.prim_func(s_tir=True)
def ragged(n: T.Buffer((4,), "int32"), x: T.Buffer((4, 8), "float32")):
    for i in range(4):
        with T.sblock("row"):
            row = T.axis.spatial(4, i)
            T.reads(n[row])
            T.writes(x[row, 0:8])
            for j in range(n[row]):
                x[row, j] = x[row, j] * T.float32(2)
"""


def test_a_loop_as_long_as_an_element_says_has_no_count():
    found = tasks.make_workload(tvm.script.from_source(RAGGED))
    assert tasks.make_task(0, found, ["ragged"], OpInfo(kind="opaque")).flops == 0


def test_a_recurrent_layer_counts_the_products_of_its_steps():
    tanh = (Activation(name="tanh"),)
    ways = tuple(Direction(reverse=back, activations=tanh) for back in (False, True))
    form = Recurrence(
        kind="RNN", steps=5, batch=2, hidden=16, directions=ways, resting=True, initial=False
    )
    function = plain.build_loops(form).with_attr("global_symbol", "main")
    found = tasks.make_workload(function)
    task = tasks.make_task(0, found, ["rnn"], OpInfo(kind="opaque"))
    assert (task.flops, task.opaque) == (2 * 2 * 4 * 2 * 16 * 16, False)


def test_what_only_copies_or_stores_constants_is_idle():
    x = te.placeholder((8, 64), "float32")
    assert described([x, te.compute((8, 64), x)]).idle
    assert described([te.compute((8, 64), lambda *_: te.const(1.0, "float32"))]).idle
    assert not described([x, topi.transpose(x)]).idle
    assert not described([x, topi.nn.relu(x)]).idle


def test_only_what_reduces_or_is_opaque_is_not_simple():
    x = te.placeholder((8, 64), "float32")
    assert described([x, topi.transpose(x)]).simple
    assert not described([x, topi.sum(x, axis=1)]).simple
    cumulated = described([x, topi.cumsum(x, axis=1)])
    assert (cumulated.reductions, cumulated.opaque, cumulated.simple) == (0, True, False)
    assert [t.shape for t in cumulated.outputs] == [(8, 64)]


def test_the_functions_of_libm_hide_nothing():
    x = te.placeholder((8, 64), "float32")
    assert not described([x, topi.erf(x)]).opaque
    assert not described([x, topi.tan(x)]).opaque


def test_weights_are_told_from_what_kernels_write():
    first, second, softmax = extract(chain())[0]
    assert (first.weights, second.weights, softmax.weights) == ((1,), (1,), ())
    x, w = (relax.Var(name, relax.TensorType((4, 4), "float32")) for name in "xw")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w], attrs={"num_input": 1}):
        with builder.dataflow():
            once = builder.emit_te(topi.add, x, w)  # a weight here, an activation below
            other = builder.emit_te(topi.multiply, once, w)
            out = builder.emit_output(builder.call_te(topi.add, other, once))
        builder.emit_func_output(out)
    assert find_weight_arguments(builder.get()) == {"add": frozenset(), "multiply": {1}}
    module = builder.get()
    body = builder.get()["main"].without_attr("global_symbol").without_attr("num_input")
    module["body"] = body.with_attr("global_symbol", "body")
    found = find_weight_arguments(module)
    assert found == {"add": frozenset(), "multiply": frozenset()}  # nobody looks at what it gives
