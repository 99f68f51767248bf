"""The size arguments of a kernel are in the order of their first use in its shapes."""

import pytest
import tvm
import tvm_ffi
from tvm import relax, tirx, topi

from autopipe.compiler.dynamic_sizes import kernel_sizes
from autopipe.compiler.module_io import list_prim_funcs
from autopipe.compiler.passes.order_size_params import order_size_params

HEIGHT, WIDTH, GAIN = (tirx.Var(name, "int64") for name in ("height", "width", "gain"))


def make_module(order):
    """Make a model of one kernel, whose size arguments are in an order."""
    shape = [4 * HEIGHT, 2 * WIDTH]
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    sizes = relax.Var(kernel_sizes.SIZES, relax.ShapeType([HEIGHT, WIDTH, GAIN]))
    builder = relax.BlockBuilder()
    tensor = tvm.te.placeholder(shape, name="x")
    gained = topi.multiply(tensor, GAIN.astype("float32"))
    function = tvm.te.create_prim_func([tensor, gained])
    given, made = [param for param in function.params if isinstance(param.ty, tirx.BufferType)]
    params = [given, *order, made]
    kernel = builder.add_func(tirx.PrimFunc(params, function.body, attrs=function.attrs), "gain")
    with builder.function("main", [x, sizes]):
        with builder.dataflow():
            call = relax.call_tir(kernel, [x, *order], relax.TensorType(shape, "float32"))
            y = builder.emit_output(call)
        builder.emit_func_output(y)
    return builder.get()


@pytest.mark.parametrize("order", [(GAIN, WIDTH, HEIGHT), (WIDTH, HEIGHT, GAIN)])
def test_sizes_are_in_the_order_of_the_shapes_and_others_follow(order):
    ordered = order_size_params(make_module(order))
    ((_, function),) = list_prim_funcs(ordered)
    sizes = [size for _, size in kernel_sizes.list_size_params(function)]
    assert sizes == [HEIGHT, WIDTH, GAIN]
    usual = make_module((HEIGHT, WIDTH, GAIN))
    assert tvm_ffi.structural_equal(ordered, usual)


def test_sizes_in_order_stay():
    module = make_module((HEIGHT, WIDTH, GAIN))
    assert order_size_params(module).same_as(module)
