"""The model at each likely size, with its tasks as they are named and called there."""

from tvm import relax

from autopipe.artifacts.lowering import SizedModules
from autopipe.compiler import lowering, module_io
from autopipe.compiler.tasks import extract_tasks
from autopipe.tuning.sized_models import can_run, load_sized_models
from tests.compiler import graphs


def lowered(rows):
    """A product of so many rows, and two of another input that always has 16."""
    x, z, w = (
        relax.Var(name, relax.TensorType((count, 16), "float32"))
        for name, count in (("x", rows), ("z", 16), ("w", 16))
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [x, z, w]):
        with builder.dataflow():
            first = builder.emit(relax.op.matmul(x, w))
            second = builder.emit(relax.op.matmul(relax.op.matmul(z, w), w))
            out = builder.emit_output(relax.op.matmul(first, second))
        builder.emit_func_output(out)
    optimized = lowering.optimize(builder.get(), 2, {}, graphs.TARGET, print)
    return lowering.lower(optimized.module, graphs.TARGET)


def kept(folder, *sizes):
    """Write an artifact of *lower* with a model of 4 rows, and at these sizes; return its tasks."""
    module_io.save_module(lowered(4), folder / "module.json")
    if sizes:
        sized = SizedModules.of([{"rows": rows} for rows in sizes])
        sized.write(folder)
        for one in sized.modules:
            module_io.save_module(lowered(one.sizes["rows"]), folder / one.file)
    return extract_tasks(module_io.load_lowered(folder))[0]


def test_a_model_of_one_size_is_itself(tmp_path):
    tasks = kept(tmp_path)
    (found,) = load_sized_models(tmp_path, tasks)
    assert (list(found.tasks), found.sizes) == (tasks, {})
    assert can_run(tmp_path, tasks)


def test_a_task_of_two_sizes_is_in_both_models_with_its_calls_there(tmp_path):
    tasks = kept(tmp_path, 32, 64)
    found = list(load_sized_models(tmp_path, tasks))
    assert [one.sizes for one in found] == [{"rows": 32}, {"rows": 64}]
    (shared,) = {task.workload for task in found[0].tasks} & {t.workload for t in found[1].tasks}
    for one in found:
        names = {name for name, _ in module_io.list_prim_funcs(one.module)}
        assert names == {name for task in one.tasks for name in task.functions}
        assert {task.workload: task.calls for task in one.tasks}[shared] == 2
    assert {task.workload: task.calls for task in tasks}[shared] > 4  # of all models together


def test_kernels_whose_sizes_the_model_computes_are_not_run(tmp_path):
    tasks = kept(tmp_path, 32, 64)
    computed = [tasks[0].model_copy(update={"sizes": 1}), *tasks[1:]]
    assert not can_run(tmp_path, computed)
    every = [
        task.model_copy(update={"sizes": 1}) if "@" not in task.functions[0] else task
        for task in tasks
    ]
    assert every != tasks
    assert can_run(tmp_path, every), "which the library for every size has, and no other"
