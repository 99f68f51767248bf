"""Which tasks with open sizes are which at likely sizes."""

from tvm import relax, te, tirx, topi
from tvm.relax import transform

from autopipe.compiler.dynamic_sizes import kernel_sizes
from autopipe.compiler.tasks import extract_tasks, make_workload
from autopipe.config.dimension import Dimension


def modules(likely):
    """A bias that is added to rows of every number, and the same at likely numbers, by label."""
    rows = tirx.Var("rows", "int64")
    dimensions = {"rows": Dimension(max=8, likely=likely)}
    known = kernel_sizes.DynamicSizes.of(dimensions)
    made = {str(count): _lowered(tirx.IntImm("int64", count)) for count in likely}
    return {**made, "": kernel_sizes.annotate_sizes(_lowered(rows), known)}


def _lowered(rows):
    shape, sizes = relax.TensorType([rows, 6], "float32"), relax.ShapeType([rows])
    x, given = relax.Var("x", shape), relax.Var(kernel_sizes.SIZES, sizes)
    builder = relax.BlockBuilder()
    with builder.function("main", [x, given]):
        made = builder.emit_te(_biased, x)
        builder.emit_func_output(made)
    return transform.FuseTIR()(builder.get())


def _biased(x):
    bias = te.compute((1, 6), lambda _, j: te.const(1.0) * j, "bias")
    return topi.add(x, bias)


def extracted(likely):
    tasks, workloads = extract_tasks(modules(likely))
    (every,) = [task for task in tasks if task.likely is not None]
    return every, {task.name.partition("@")[2]: task for task in tasks}, workloads


def test_each_likely_size_has_its_task():
    every, tasks, workloads = extracted((4, 1, 6))
    assert [every.likely, *every.also_likely] == [tasks[at].workload for at in ("4", "1", "6")]
    assert set(workloads) == {task.workload for task in tasks.values()}
    assert not any(task.also_likely for task in tasks.values() if task is not every)


def test_what_is_read_at_the_only_place_is_the_same_kernel():
    """TVM reads `bias[0, j]` for every number of rows, and `bias[i, j]` for one row."""
    every, tasks, workloads = extracted((1,))
    assert (every.likely, every.also_likely) == (tasks["1"].workload, ())
    bound = kernel_sizes.bind_likely_sizes(workloads[every.workload])
    assert bound
    assert make_workload(bound["main"]).identity != every.likely


def test_a_task_without_dynamic_sizes_is_none_at_likely_ones():
    tasks, _ = extract_tasks({"": _lowered(tirx.IntImm("int64", 4))})
    assert [(task.likely, task.also_likely) for task in tasks] == [(None, ())]
