import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from safetensors.numpy import load_file, save_file

from autopipe.errors import StageError
from autopipe.verification import reference

pytest.importorskip("onnxruntime")


@pytest.fixture
def refused(tmp_path):
    """A model and a case that onnxruntime, without a convolution in float64, can not run."""
    ports = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, [1, 1, 2, 2]) for n in "xky"]
    graph = helper.make_graph([helper.make_node("Conv", ["x", "k"], ["y"])], "g", [], ports[2:])
    ports[1].type.tensor_type.shape.dim[2].dim_value = 1
    ports[1].type.tensor_type.shape.dim[3].dim_value = 1
    graph.input.extend(ports[:2])
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), tmp_path / "m.onnx")
    arrays = {"x": np.arange(4.0).reshape(1, 1, 2, 2), "k": np.full((1, 1, 1, 1), 3.0)}
    save_file(arrays, tmp_path / "0.safetensors")
    return tmp_path / "m.onnx", [tmp_path / "0.safetensors"]


def test_auto_falls_back_where_onnxruntime_has_no_kernel_and_says_so(refused):
    expected = reference.expect(reference.choose("auto"), *refused)
    assert expected.engine == "onnx"
    assert expected.version == onnx.__version__
    assert "NOT_IMPLEMENTED" in expected.refusals[0]
    found = load_file(expected.files[0])["y"]
    np.testing.assert_array_equal(found, 3 * np.arange(4.0).reshape(1, 1, 2, 2))


def test_a_reference_asked_for_by_name_has_no_stand_in(refused):
    with pytest.raises(StageError, match=r"the reference onnxruntime failed: .*NOT_IMPLEMENTED"):
        reference.expect(reference.choose("onnxruntime"), *refused)
