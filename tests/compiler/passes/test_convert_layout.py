import numpy as np
import pytest
import tvm
from tvm import relax

from autopipe.compiler import lowering
from autopipe.compiler.library.evaluate_weights import evaluate_weights
from autopipe.compiler.passes import convert_layout
from tests.compiler import graphs


def optimized(module, desired=graphs.NHWC, warnings=None):
    warn = (warnings if warnings is not None else []).append
    return lowering.optimize(module, 1, desired, graphs.TARGET, warn)


def evaluate(result, arrays):
    packed = evaluate_weights(result.transform, arrays[1:], graphs.TARGET, lambda module: module)
    return graphs.run(result.module, [arrays[0], *packed])


def test_every_sensitive_op_is_converted_and_only_the_ends_are_transposed():
    report = optimized(graphs.convolution()).layout
    assert report.layouts == {"nn.conv2d": {"NHWC": 2}, "nn.max_pool2d": {"NHWC": 1}}
    assert report.transposes == 2


def test_no_wish_leaves_the_layout():
    report = optimized(graphs.convolution(), {}).layout
    assert report.layouts == {"nn.conv2d": {"NCHW": 2}, "nn.max_pool2d": {"NCHW": 1}}
    assert report.transposes == 0


@pytest.mark.fault("E8")
@pytest.mark.parametrize("desired", [{}, graphs.NHWC, {"conv2d": ["NHWC", "OHWI"]}])
def test_conversion_changes_no_number(desired):
    module = graphs.convolution(stride=2)
    arrays = graphs.arguments(module)
    expected = graphs.expected(module, arrays)
    np.testing.assert_allclose(
        evaluate(optimized(module, desired), arrays), expected, rtol=1e-4, atol=1e-5
    )


def test_where_tvm_gives_up_each_op_is_converted_by_itself(monkeypatch):
    def give_up(*_):
        raise tvm.error.InternalError("no such layout\nCheck failed: lost")

    monkeypatch.setattr(convert_layout, "propagate_layouts", give_up)
    module = graphs.convolution()
    arrays = graphs.arguments(module)
    warnings: list[str] = []
    result = optimized(module, warnings=warnings)
    assert result.layout.layouts["nn.conv2d"] == {"NHWC": 2}
    assert len(warnings) == 1
    assert "lost" in warnings[0]
    np.testing.assert_allclose(
        evaluate(result, arrays), graphs.expected(module, arrays), rtol=1e-4, atol=1e-5
    )


def upsampled():
    """A convolution, a transposed one that no plain one can replace, and a convolution again."""
    x = relax.Var("x", relax.TensorType((1, 4, 6, 6), "float32"))
    shapes = {"k1": (8, 4, 3, 3), "t": (8, 4, 2, 2), "k2": (5, 4, 3, 3)}
    params = [relax.Var(name, relax.TensorType(s, "float32")) for name, s in shapes.items()]
    builder = relax.BlockBuilder()
    with builder.function("main", [x, *params]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.relu(relax.op.nn.conv2d(x, params[0], padding=1)))
            y = builder.emit(relax.op.nn.conv2d_transpose(y, params[1], dilation=(2, 2)))
            y = builder.emit(relax.op.nn.conv2d(y, params[2], padding=1))
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.fault("E8")
def test_an_op_that_tvm_has_in_one_layout_keeps_it_and_the_others_do_not():
    module = upsampled()
    warnings: list[str] = []
    arrays = graphs.arguments(module)
    result = optimized(module, warnings=warnings)
    assert result.layout.layouts == {
        "nn.conv2d": {"NHWC": 2},
        "nn.conv2d_transpose": {"NCHW": 1},
    }
    assert warnings == []
    np.testing.assert_allclose(
        evaluate(result, arrays), graphs.expected(module, arrays), rtol=1e-4, atol=1e-5
    )


def test_an_op_without_a_compute_in_the_new_layout_stays_out_of_it(monkeypatch):
    monkeypatch.setattr(convert_layout, "ONE_LAYOUT", {})
    module = upsampled()
    warnings: list[str] = []
    arrays = graphs.arguments(module)
    result = optimized(module, warnings=warnings)
    assert "nn.conv2d_transpose" in warnings[0]
    assert result.layout.layouts["nn.conv2d_transpose"] == {"NCHW": 1}
    np.testing.assert_allclose(
        evaluate(result, arrays), graphs.expected(module, arrays), rtol=1e-4, atol=1e-5
    )
