import tvm
from tvm import relax

from autopipe.compiler import passes, tasks
from autopipe.compiler.tasks import Workload
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
    optimized = passes.optimize(module, 1, {}, graphs.TARGET, print)
    lowered = passes.lower(optimized.module, graphs.TARGET)
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
    assert tasks.workload(renamed).identity == tasks.workload(function).identity


def test_different_workloads_with_one_hash_stay_apart():
    one, other = (Workload("f" * 16, module) for module in list(extract(chain())[1].values())[:2])
    moved = tasks._distinct(other, {one.identity: one})
    assert (moved.identity, moved.module) == ("0" * 16, other.module)
    assert tasks._distinct(one, {one.identity: one}).identity == one.identity


def test_functions_without_blocks_are_tasks_without_reductions():
    function = tvm.tirx.PrimFunc([], tvm.tirx.Evaluate(0))
    assert tasks._sblocks(tvm.IRModule({"main": function})) == []
