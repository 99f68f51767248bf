"""Builds of the product x @ w, in numpy, whose weights are said to be rounded to bfloat16."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autopipe.artifacts.signature import Port, Signature
from autopipe.compiler.frontends.onnx.facts.reference import write_reference
from autopipe.config.verify import Verify
from autopipe.errors import GateError
from autopipe.verification.check import verify_build
from autopipe.verification.contained_build import ContainedBuild
from autopipe.verification.rounding import to_bfloat16
from tests.verification.imported_onnx import describe_imported

X, Y = Port(name="x", shape=(3, 64), dtype="float32"), Port(name="y", shape=(3, 8), dtype="float32")
W = np.random.default_rng(0).standard_normal((64, 8)).astype("f")


def verified(tmp_path, compute, forged=None, **options):
    ports = [helper.make_tensor_value_info(port.name, TensorProto.FLOAT, port.shape)
             for port in (X, Y)]  # fmt: skip
    weight = helper.make_tensor_value_info("w", TensorProto.FLOAT, W.shape)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [ports[0], weight], ports[1:])
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    onnx.checker.check_model(model)
    write_reference(model, {"w": W}, None, tmp_path)
    describe_imported(model, tmp_path)
    if forged:
        (tmp_path.parent / "outside").write_bytes(W.tobytes())
        written = onnx.load(tmp_path / "reference.onnx", load_external_data=False)
        for place in written.graph.initializer[0].external_data:
            place.value = forged.get(place.key, place.value)
        (tmp_path / "reference.onnx").write_bytes(written.SerializeToString())

    class Build(ContainedBuild):
        def __init__(self):
            self.signature = Signature(inputs=(X,), outputs=(Y,), weights=(), threads=1)
            self.rounded = ("w",)

        def __call__(self, inputs, *, generic=False):
            with np.errstate(all="ignore"):
                return {"y": compute(inputs["x"])}

    work = tmp_path / "work"
    work.mkdir()
    return verify_build(Build(), tmp_path, Verify(reference="onnx", **options), work)


def test_a_build_is_equal_to_the_model_with_rounded_weights(tmp_path):
    found = verified(tmp_path, lambda x: x @ to_bfloat16(W))
    assert 5e-4 < found.rounded_by < 5e-3
    assert "% off by bfloat16" in found.summary()


def test_a_build_that_rounds_nothing_or_more_is_wrong(tmp_path):
    with pytest.raises(GateError, match="output 'y' is wrong"):
        verified(tmp_path, lambda x: x @ W)


def test_a_column_that_is_off_by_the_size_of_a_rounding_is_wrong(tmp_path):
    scale = np.array([1] * 7 + [1.004], "f")
    with pytest.raises(GateError, match="output 'y' is wrong"):
        verified(tmp_path, lambda x: x @ (to_bfloat16(W) * scale))


@pytest.mark.parametrize(("entry", "said"), [("location", "../outside"), ("offset", str(1 << 40))])
def test_weights_that_a_reference_says_are_elsewhere_are_not_touched(tmp_path, entry, said):
    """Another one's store may have written it: without them, the imported model is asked."""
    folder = tmp_path / "imported"
    folder.mkdir()
    with pytest.raises(FileNotFoundError, match=r"module\.json"):  # of which there is none here
        verified(folder, lambda x: x @ to_bfloat16(W), forged={entry: said})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["imported", "outside"]
    assert (tmp_path / "outside").read_bytes() == W.tobytes()


def test_rounding_that_moves_outputs_too_far_is_refused(tmp_path):
    with pytest.raises(GateError, match=r"move output 'y' by 0\.\d\d% .*accuracy allows 0\.05%"):
        verified(tmp_path, lambda x: x @ to_bfloat16(W), accuracy=0.0005)
