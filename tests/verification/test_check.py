from unittest.mock import create_autospec

import onnx
import pytest
from onnx import TensorProto, helper

from autopipe.artifacts.signature import Port, Signature
from autopipe.compiler.library.runtime import LoadedModel
from autopipe.config import Verify
from autopipe.errors import GateError
from autopipe.verification.check import verify

X = Port(name="x", shape=(50,), dtype="float32")
Y = Port(name="y", shape=(50,), dtype="float32")


def verified(tmp_path, compute, **options):
    """Verify a function as if it were a build of the identity."""
    ports = [
        helper.make_tensor_value_info(port.name, TensorProto.FLOAT, port.shape) for port in (X, Y)
    ]
    node = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([node], "g", ports[:1], ports[1:])
    opset = helper.make_opsetid("", 17)
    onnx.save(
        helper.make_model(graph, opset_imports=[opset], ir_version=8), tmp_path / "reference.onnx"
    )

    signature = Signature(inputs=(X,), outputs=(Y,), weights=(), threads=1)
    build = create_autospec(LoadedModel, instance=True)
    build.signature = signature
    build.side_effect = lambda arrays: {"y": compute(arrays["x"])}
    return verify(build, tmp_path, Verify(reference="onnx", **options), tmp_path)


def test_rounding_on_the_scale_of_usual_outputs_passes_where_outputs_are_small(tmp_path):
    verified(tmp_path, lambda x: x + x.dtype.type(5e-5))


def test_a_tolerance_is_on_the_scale_of_the_output(tmp_path):
    with pytest.raises(GateError):
        verified(tmp_path, lambda x: x + x.dtype.type(5e-4))


def test_a_given_tolerance_is_literal(tmp_path):
    verified(tmp_path, lambda x: x + x.dtype.type(5e-4), atol=1e-3)
    with pytest.raises(GateError, match="allowed rtol 0 and atol 1e-05"):
        verified(tmp_path, lambda x: x + x.dtype.type(5e-5), rtol=0.0, atol=1e-5)


def test_the_worst_of_several_failures_is_named(tmp_path):
    with pytest.raises(
        GateError,
        match=r"wrong on case 'large': .* \d comparisons fail in all; no tolerance would pass",
    ):
        verified(tmp_path, lambda x: -x)


def test_an_error_on_one_case_alone_is_found(tmp_path):
    with pytest.raises(GateError, match=r"wrong on case 'zeros': 50 of 50 values"):
        verified(tmp_path, lambda x: x if x.any() else x + 1)
