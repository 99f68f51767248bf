import pytest
from tvm import relax

from autopipe.compiler import lowering, module_io, tasks
from autopipe.compiler.labels import op_info
from autopipe.compiler.passes import fuse_ops
from autopipe.errors import ModelError
from autopipe.tasks.op_info import Parameter, Result
from tests.compiler import graphs


def lowered(**kwargs):
    optimized = lowering.optimize(
        graphs.convolution(**kwargs), 1, graphs.NHWC, graphs.TARGET, print
    )
    return lowering.lower(optimized.module, graphs.TARGET)


def infos(module):
    return [op_info.read_op_info(function) for _, function in module_io.list_prim_funcs(module)]


def test_every_function_knows_its_ops_in_order():
    ops = {info.names for info in infos(lowered())}
    assert ("nn.conv2d", "add", "nn.relu") in ops
    assert ("nn.conv2d", "multiply") in ops


def test_attributes_are_those_of_the_converted_op():
    info = next(info for info in infos(lowered(stride=2)) if len(info.ops) == 3)
    attrs = info.ops[0].attributes
    assert attrs["strides"] == [2, 2]
    assert attrs["padding"] == [1, 1, 1, 1]
    assert (attrs["data_layout"], attrs["kernel_layout"]) == ("NHWC", "HWIO")


def test_weights_are_free_in_layout_and_inputs_are_not():
    free = {
        name: [int(i) for i in function.attrs["layout_free_buffers"]]
        for name, function in module_io.list_prim_funcs(lowered())
    }
    by_ops = {
        op_info.read_op_info(function).names: free[name]
        for name, function in module_io.list_prim_funcs(lowered())
    }
    assert by_ops["nn.conv2d", "add", "nn.relu"] == [1, 2]
    assert by_ops["nn.max_pool2d",] == []


def test_ops_that_tvm_can_not_lower_are_named(monkeypatch):
    monkeypatch.setattr(fuse_ops, "list_unlegalized_ops", lambda _: ["nn.odd", "nn.other"])
    with pytest.raises(ModelError, match=r"nn\.odd, nn\.other"):
        lowered()


def test_lowering_twice_gives_the_same_module():
    first, second = (module_io.list_prim_funcs(lowered()) for _ in range(2))
    assert [n for n, _ in first] == [n for n, _ in second]
    hashes = [
        [tasks.make_workload(f).identity for _, f in functions] for functions in (first, second)
    ]
    assert hashes[0] == hashes[1]


def test_an_op_whose_code_in_tvm_is_broken_is_a_model_error():
    x = relax.Var("x", relax.TensorType((1, 8, 4, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.pixel_shuffle(x, 2))
        builder.emit_func_output(out)
    with pytest.raises(ModelError, match="TVM cannot compute an op as this model uses it: Attr"):
        lowering.lower(builder.get(), graphs.TARGET)


def test_parameters_of_one_name_are_told_apart():
    """Work that is lifted out of two places leaves two weights of the same name."""
    shapes = [(4, 8), (8,), (8,)]
    x, *both = (relax.Var("lv", relax.TensorType(shape, "float32")) for shape in shapes)
    builder = relax.BlockBuilder()
    with builder.function("main", [x, *both]):
        with builder.dataflow():
            y = builder.emit(relax.op.add(x, both[0]))
            out = builder.emit_output(relax.op.multiply(y, both[1]))
        builder.emit_func_output(out)
    (info,) = infos(lowering.lower(builder.get(), graphs.TARGET))
    assert info.ops[0].arguments == (Parameter(parameter=0), Parameter(parameter=1))
    assert info.ops[1].arguments == (Result(op=0), Parameter(parameter=2))


def test_a_layout_that_an_op_behind_has_no_code_for_is_kept_from_it():
    x = relax.Var("x", relax.TensorType((1, 4, 7, 8), "float32"))
    weight = relax.Var("w", relax.TensorType((4, 4, 1, 1), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, weight]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, weight))
            out = builder.emit_output(relax.op.image.resize2d(y, (4, 6), layout="NCHW"))
        builder.emit_func_output(out)
    told: list[str] = []
    layout = {"conv2d": ["HWNC", "HWIO"]}
    optimized = lowering.optimize(builder.get(), 1, layout, graphs.TARGET, told.append)
    assert "HWNC layout is not supported" in told[0]
    ops = {op.name for i in infos(lowering.lower(optimized.module, graphs.TARGET)) for op in i.ops}
    assert {"nn.conv2d", "image.resize2d"} <= ops
