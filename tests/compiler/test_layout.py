import numpy as np
import pytest
import tvm

from autopipe.compiler import layout, passes, weights
from tests.compiler import graphs


def optimized(module, desired=graphs.NHWC, warnings=None):
    warn = (warnings if warnings is not None else []).append
    return passes.optimize(module, 1, desired, graphs.TARGET, warn)


def evaluate(result, arrays):
    packed = weights.evaluate(result.transform, arrays[1:], graphs.TARGET, lambda module: module)
    return graphs.run(result.module, [arrays[0], *packed])


def test_every_sensitive_op_is_converted_and_only_the_ends_are_transposed():
    report = optimized(graphs.convolution()).layout
    assert report.layouts == {"nn.conv2d": {"NHWC": 2}, "nn.max_pool2d": {"NHWC": 1}}
    assert report.transposes == 2


def test_no_wish_leaves_the_layout():
    report = optimized(graphs.convolution(), {}).layout
    assert report.layouts == {"nn.conv2d": {"NCHW": 2}, "nn.max_pool2d": {"NCHW": 1}}
    assert report.transposes == 0


@pytest.mark.parametrize("desired", [{}, graphs.NHWC, {"conv2d": ["NHWC", "OHWI"]}])
def test_conversion_changes_no_number(desired):
    module = graphs.convolution(stride=2)
    arrays = graphs.arguments(module)
    expected = graphs.run(module, arrays)
    np.testing.assert_allclose(
        evaluate(optimized(module, desired), arrays), expected, rtol=1e-4, atol=1e-5
    )


def test_where_tvm_gives_up_each_op_is_converted_by_itself(monkeypatch):
    def give_up(_):
        raise tvm.error.InternalError("no such layout\nCheck failed: lost")

    monkeypatch.setattr(layout.relax.transform, "ConvertLayout", lambda _: give_up)
    module = graphs.convolution()
    arrays, warnings = graphs.arguments(module), []
    result = optimized(module, warnings=warnings)
    assert result.layout.layouts["nn.conv2d"] == {"NHWC": 2}
    assert len(warnings) == 1
    assert "lost" in warnings[0]
    np.testing.assert_allclose(
        evaluate(result, arrays), graphs.run(module, arrays), rtol=1e-4, atol=1e-5
    )
