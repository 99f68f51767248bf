"""Groups that TVM puts together and can not merge are kept apart."""

import pytest
import tvm
from tvm import relax, te, tirx
from tvm.relax import transform
from tvm.s_tir import Schedule

from autopipe.compiler.fusion.keep_apart import fuse_mergeable
from autopipe.compiler.module_io import list_prim_funcs
from autopipe.compiler.target.target import make_host_target

FUSE = transform.FuseOps()


def legalize(module):
    """Make each op a call of a kernel that states its kind of loops."""
    with make_host_target(1):
        steps = [transform.LegalizeOps(), transform.AnnotateTIROpPattern()]
        return tvm.transform.Sequential(steps)(module)


def legalized():
    """Places of new tokens behind past ones: `past` is a number, `new` an extent and a number."""
    past, new = (tirx.Var(name, "int64") for name in ("past", "new"))
    params = [
        relax.Var(name, relax.TensorType([size], "int64"))
        for name, size in (("x", past), ("y", new))
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            count = builder.emit(relax.op.shape_to_tensor(relax.ShapeExpr([past])))
            first = builder.emit(relax.op.reshape(count, []))
            places = builder.emit(relax.op.arange(0, new, 1, "int64"))
            found = builder.emit_output(relax.op.add(places, first))
        builder.emit_func_output(found)
    return legalize(builder.get())


def test_what_can_not_be_merged_stays_apart():
    module = legalized()
    with pytest.raises(tvm.error.InternalError):
        transform.FuseTIR()(FUSE(module))  # what this is for: TVM can not by itself
    merged = transform.FuseTIR()(fuse_mergeable(module, FUSE))
    names = [name for name, _ in list_prim_funcs(merged)]
    assert any("add" in name and name.startswith("fused") for name in names), names


def test_two_forms_of_an_extent_are_not_taken_for_each_other():
    """Of `n * 2 + m` for `n + m + n`, TVM takes the last `n` for `m`."""
    n, m = (tirx.Var(name, "int64") for name in ("n", "m"))
    x = relax.Var("x", relax.TensorType([n, 4], "float32"))
    y = relax.Var("y", relax.TensorType([m, 4], "float32"))
    builder = relax.BlockBuilder()

    def doubled(data, *_):
        return te.compute(data.shape, lambda *index: data[index] * 2.0, "doubled")

    with builder.function("main", [x, y]):
        with builder.dataflow():
            both = builder.emit(relax.op.concat([x, y, x]))
            made = builder.emit_te(doubled, both, n, m)
            found = builder.emit_output(relax.op.nn.relu(made))
        builder.emit_func_output(found)
    module = legalize(builder.get())
    for _, function in list_prim_funcs(transform.FuseTIR()(fuse_mergeable(module, FUSE))):
        Schedule(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))


def test_an_op_is_fused_with_a_convolution_that_halves_sizes():
    """Only the result of the convolution has the size as an extent of its own."""
    size = tirx.Var("size", "int64")
    x = relax.Var("x", relax.TensorType([1, size * 2, 8, 4], "float32"))
    sizes = relax.Var("sizes", relax.ShapeType([size]))
    weight = relax.Var("w", relax.TensorType([3, 3, 4, 4], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, sizes, weight]):
        with builder.dataflow():
            layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
            y = builder.emit(relax.op.nn.conv2d(x, weight, strides=2, padding=1, **layouts))
            found = builder.emit_output(relax.op.nn.relu(y))
        builder.emit_func_output(found)
    module = legalize(builder.get())
    merged = transform.DeadCodeElimination()(transform.FuseTIR()(fuse_mergeable(module, FUSE)))
    ((name, _),) = list_prim_funcs(merged)
    assert name.startswith("fused_conv2d")


def test_groups_of_fixed_sizes_are_not_looked_at():
    x = relax.Var("x", relax.TensorType([4], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit_output(relax.op.nn.relu(x))
        builder.emit_func_output(made)
    asked = []

    def fuse(module):
        asked.append(module)
        return module

    fuse_mergeable(builder.get(), fuse)
    assert len(asked) == 1
