"""Kernels are timed inside models that differ by their schedules."""

from dataclasses import replace

import pytest
import tvm
from tvm import relax

from autopipe.compiler import lowering, module_io, tasks
from autopipe.compiler.library.call_thread import CallThread
from autopipe.compiler.library.kernel_threads import use_threads
from autopipe.measure import tensors
from autopipe.measure.in_model import InModel, ModelSource, Weights, _Alone
from autopipe.processes.contained import Failed
from autopipe.schedules.engines import default
from autopipe.schedules.templates.contraction import CONTRACTION
from autopipe.schedules.templates.template import match_function
from tests.compiler import graphs
from tests.schedules.tasks import CONDITIONS


def two_products():
    """Return relu(x a) b; each product may pack its weights."""
    x, a, b = (
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in {"x": (32, 64), "a": (64, 96), "b": (96, 64)}.items()
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [x, a, b]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.relu(relax.op.matmul(x, a)))
            out = builder.emit_output(relax.op.matmul(y, b))
        builder.emit_func_output(out)
    return builder.get()


def packed(workload):
    sch, found = match_function(workload, CONTRACTION)
    CONTRACTION.apply(sch, found, CONTRACTION.fill(found, CONDITIONS.hardware))
    return sch.mod


@pytest.fixture(scope="module")
def source():
    optimized = lowering.optimize(two_products(), 1, {}, graphs.TARGET, print)
    lowered = lowering.lower(optimized.module, graphs.TARGET)
    bodies = {}
    for name, function in module_io.list_prim_funcs(lowered):
        loops = tasks.make_workload(function).module
        bodies[name] = (default.schedule(loops, graphs.TARGET), packed(loops))
    return ModelSource(lowered, bodies, graphs.TARGET, 2)


def test_all_kernels_are_timed_with_each_schedule(source):
    with InModel(source, lambda: 60.0) as model:
        model.build({})
        for name in source.bodies:
            model.add(0, [name])
            model.add(1, [name])
        for _ in range(2):
            found = model.round([{}, dict.fromkeys(source.bodies, 1)])
            assert [one.keys() for one in found] == [source.bodies.keys()] * 2
            assert min(*found[0].values(), *found[1].values(), model.unwatched()) > 0


def test_a_fork_of_a_thread_with_workers_times_kernels_on_workers_of_its_own(source):
    def time_kernels():
        with InModel(source, lambda: 30.0) as model:
            model.build({})
            for name in source.bodies:
                model.add(1, [name])
            return model.round([dict.fromkeys(source.bodies, 1)])

    thread = CallThread(lambda: use_threads(2))
    try:
        (times,) = thread.run(time_kernels)
    finally:
        thread.end()
    assert min(times.values()) > 0


def test_a_model_at_one_of_its_sizes_is_given_these_behind_the_inputs(source):
    """As the library for one likely size is called."""
    main = source.lowered["main"]
    sizes = relax.Var("sizes", relax.ShapeType([32]))
    count = int(main.attrs["num_input"])
    params = [*main.params[:count], sizes, *main.params[count:]]
    lowered = tvm.IRModule(dict(source.lowered.functions_items()))
    lowered["main"] = relax.Function(
        params, main.body, main.ret_ty, main.is_pure, main.attrs
    ).with_attr("num_input", count + 1)
    with InModel(replace(source, lowered=lowered), lambda: 60.0) as model:
        model.build({})
        assert min(*model.round([{}])[0].values(), model.unwatched()) > 0
        model.link({})
        assert model._linked({}).steps == (32,)
        assert min(model.whole([{}])) > 0


def test_the_model_of_each_set_of_schedules_runs_as_a_package_does(source):
    places = [{}, dict.fromkeys(source.bodies, 1)]
    with InModel(source, lambda: 60.0) as model:
        for place in places:
            model.link(place)
        assert min(model.whole(places)) > 0
        folder = model._linked(places[0]).folder
        assert (folder / "lib.so").exists()
        (folder / "lib.so").unlink()
        with pytest.raises(Failed, match=r"lib\.so"):
            model.whole(places)
    assert not folder.exists()


def test_a_model_that_can_not_be_built_is_a_failure(source):
    name = next(iter(source.bodies))
    broken = replace(source, bodies={**source.bodies, name: (tvm.IRModule({}),)})
    with InModel(broken, lambda: 60.0) as model, pytest.raises(Failed):
        model.build({})


def test_schedules_of_a_function_share_the_memory_of_its_weights():
    """Or a challenger of two equal kernels would find those of the second call in a cache."""
    x, w = tensors.make_tensor((2, 8), "float32"), tensors.make_tensor((8, 16), "float32")
    shapes = [((2, 8), "float32"), ((2, 8, 8), "float32")]
    one: Weights = {}
    other: Weights = {}
    first, second, apart = (_Alone(print, shapes, kept) for kept in (one, one, other))
    taken = [alone.taken([x, w])[1] for alone in (first, second, apart)]
    places = [tensor.data_ptr() for tensor in taken]
    assert first.taken([x, w])[0].data_ptr() == x.data_ptr()
    assert [tuple(tensor.shape) for tensor in taken] == [(2, 8, 8)] * 3
    assert places[0] == places[1] != places[2]


def test_each_call_of_a_function_has_weights_of_its_own():
    """Or the second call of a schedule that wants another layout would find them in a cache."""
    x, *model = (tensors.make_tensor(shape, "float32") for shape in [(2, 8), (8, 16), (8, 16)])
    shapes = [((2, 8), "float32"), ((2, 8, 8), "float32")]
    alone = _Alone(print, shapes, {})
    runs = [[alone.taken([x, w])[1].data_ptr() for w in model] for _ in range(2)]
    assert runs[0] == runs[1]
    assert len({*runs[0], *(w.data_ptr() for w in model)}) == 4
