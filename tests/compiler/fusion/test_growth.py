from tvm import relax

from autopipe.compiler import module_io, op_info, passes
from tests.compiler import graphs


def gated(shape):
    """A gate: the input times the sigmoid of a product of this shape."""
    x = relax.Var("x", relax.TensorType((1, 64, 16), "float32"))
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
    optimized = passes.optimize(module, 2, {}, graphs.TARGET, print)
    lowered = passes.lower(optimized.module, graphs.TARGET)
    return {op_info.carried(function).names for _, function in module_io.prim_funcs(lowered)}


def test_what_spreads_a_small_result_over_a_large_tensor_stays_apart():
    assert fused(gated((1, 1, 16))) == {("matmul", "sigmoid"), ("multiply",)}


def test_what_keeps_the_size_of_the_result_is_fused():
    assert fused(gated((1, 64, 16))) == {("matmul", "sigmoid", "multiply")}
