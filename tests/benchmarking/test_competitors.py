"""Each competitor that is installed, on a model small enough to know the answer."""

from importlib.util import find_spec

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autopipe.benchmarking.competitors import COMPETITORS
from autopipe.benchmarking.contender import find_outputs_path, time_contender
from autopipe.config.benchmark import Benchmark
from autopipe.errors import StageError
from autopipe.store import arrays

QUICK = Benchmark(warmup=0, repeat=2)
WEIGHT = np.arange(12, dtype=np.float32).reshape(3, 4) / 10

installed = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.skipif(not find_spec(competitor.module), reason="absent"))
     for name, competitor in COMPETITORS.items()],
)  # fmt: skip


def saved(folder, *nodes):
    """Write a model of floats `x` and whole numbers `rows` with two outputs."""
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("rows", TensorProto.INT64, [2]),
    ]
    results = [
        helper.make_tensor_value_info("picked", TensorProto.FLOAT, [2, 4]),
        helper.make_tensor_value_info("positive", TensorProto.FLOAT, [2, 4]),
    ]
    weights = [numpy_helper.from_array(WEIGHT, "weight")]
    graph = helper.make_graph(list(nodes), "small", ports, results, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


@installed
def test_a_competitor_runs_a_model_with_its_inputs_and_gives_its_outputs_in_order(name, tmp_path):
    model = saved(
        tmp_path,
        helper.make_node("MatMul", ["x", "weight"], ["product"]),
        helper.make_node("Relu", ["product"], ["positive"]),
        helper.make_node("Gather", ["product", "rows"], ["picked"], axis=0),
    )
    x = np.array([[1, -2, 3], [-1, 2, 0.5]], np.float32)
    inputs = tmp_path / "inputs"
    arrays.save({"x": x, "rows": np.array([1, 0])}, inputs)
    found = time_contender(name, model, inputs, QUICK, 1)
    assert len(found.seconds) >= 2
    assert found.version[0].isdigit()
    made = arrays_of(find_outputs_path(name, inputs))
    np.testing.assert_allclose(made["0"], (x @ WEIGHT)[[1, 0]], rtol=1e-5)
    np.testing.assert_allclose(made["1"], np.maximum(x @ WEIGHT, 0), rtol=1e-5)


@installed
def test_a_competitor_that_can_not_run_a_model_says_so_in_a_line(name, tmp_path):
    model = saved(
        tmp_path,
        helper.make_node("NoSuchOp", ["x", "weight"], ["positive"]),
        helper.make_node("NoSuchOp", ["x", "rows"], ["picked"]),
    )
    inputs = tmp_path / "inputs"
    arrays.save({"x": np.zeros((2, 3), np.float32), "rows": np.array([1, 0])}, inputs)
    with pytest.raises(StageError, match=f"^contender {name}: .") as told:
        time_contender(name, model, inputs, QUICK, 1)
    assert "\n" not in str(told.value)


def arrays_of(path):
    from safetensors.numpy import load_file

    return load_file(path)
