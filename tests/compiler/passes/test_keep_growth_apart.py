from tvm import relax, tirx

from autopipe.compiler import lowering, module_io
from autopipe.compiler.labels import op_info
from tests.compiler import graphs


def gated(shape, image=(1, 64, 16)):
    """A gate: the input times the sigmoid of a product of this shape."""
    x = relax.Var("x", relax.TensorType(image, "float32"))
    pooled = relax.Var("pooled", relax.TensorType(shape, "float32"))
    weight = relax.Var("w", relax.TensorType((16, 16), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, pooled, weight]):
        with builder.dataflow():
            y = builder.emit(relax.op.sigmoid(relax.op.matmul(pooled, weight)))
            out = builder.emit_output(relax.op.multiply(x, y))
        builder.emit_func_output(out)
    return builder.get()


def fused(module):
    optimized = lowering.optimize(module, 2, {}, graphs.TARGET, print)
    lowered = lowering.lower(optimized.module, graphs.TARGET)
    return {
        op_info.read_op_info(function).names for _, function in module_io.list_prim_funcs(lowered)
    }


def test_what_spreads_a_small_result_over_a_large_tensor_stays_apart():
    assert fused(gated((1, 1, 16))) == {("matmul", "sigmoid"), ("multiply",)}


def test_what_keeps_the_size_of_the_result_is_fused():
    assert fused(gated((1, 64, 16))) == {("matmul", "sigmoid", "multiply")}


def test_a_small_result_stays_apart_from_a_tensor_of_dynamic_size():
    pixels = tirx.Var("pixels", "int64")
    assert fused(gated((1, 1, 16), (1, pixels, 16))) == {("matmul", "sigmoid"), ("multiply",)}


def test_a_result_of_dynamic_size_is_fused_with_a_tensor_of_its_size():
    pixels = tirx.Var("pixels", "int64")
    assert fused(gated((1, pixels, 16), (1, pixels, 16))) == {("matmul", "sigmoid", "multiply")}


def resized(size):
    """The square of an image, larger or smaller, with a residual, and its channels first."""
    x = relax.Var("x", relax.TensorType((1, 8, 8, 16), "float32"))
    residual = relax.Var("residual", relax.TensorType((1, size, size, 16), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, residual]):
        with builder.dataflow():
            square = builder.emit(relax.op.multiply(x, x))
            y = builder.emit(relax.op.image.resize2d(square, (size, size), layout="NHWC"))
            moved = builder.emit(relax.op.add(y, residual))
            out = builder.emit_output(relax.op.permute_dims(moved, [0, 3, 1, 2]))
        builder.emit_func_output(out)
    return builder.get()


def test_an_image_is_made_larger_pixel_by_pixel_before_it_is_turned():
    parts = {("multiply",), ("image.resize2d", "add"), ("permute_dims",)}
    assert fused(resized(19)) == parts


def test_what_makes_an_image_smaller_is_fused_as_before():
    assert fused(resized(5)) == {("multiply", "image.resize2d", "add", "permute_dims")}


def reused(steps):
    """A chain of gates that read each value twice."""
    x, other = (relax.Var(name, relax.TensorType((4, 16), "float32")) for name in ("x", "other"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, other]):
        with builder.dataflow():
            y = x
            for _ in range(steps):
                gate = builder.emit(relax.op.sigmoid(y))
                y = builder.emit(relax.op.multiply(y, gate))
            out = builder.emit_output(relax.op.add(y, other))
        builder.emit_func_output(out)
    return builder.get()


def test_values_that_are_read_twice_double_no_expression_for_ever():
    (names,) = fused(reused(3))
    assert len(names) == 7
    assert max(map(len, fused(reused(24)))) <= 7
