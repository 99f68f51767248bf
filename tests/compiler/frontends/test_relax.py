"""Each node of a model is converted once, static, dynamic or data-dependent."""

# mypy: disable-error-code="arg-type"

import pytest
from onnx import TensorProto

from autopipe.compiler.frontends.onnx.conversion.converted_nodes import ConvertedNodes
from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.config.dimension import Dimension
from autopipe.config.model import Input
from autopipe.errors import ModelError
from tests.compiler.frontends.models import FLOAT, ints, model, node, save, value

STATIC = [node("Relu", ["x"])]
DATA_DEPENDENT = [node("Relu", ["x"], "relu"), node("NonZero", ["relu"], "places"),
                  node("Cast", ["places"], to=FLOAT)]  # fmt: skip
REFUSED = [node("Relu", ["x"], "relu"), node("Unique", ["relu"], axis=0)]
GIVEN = [node("Expand", ["one", "shape"], "spread"), node("Squeeze", ["one", "axis"], "squeezed"),
         node("ReduceSum", ["one", "axis"], "summed"), node("Size", ["one"], "size")]  # fmt: skip
OUTPUTS = dict.fromkeys(("spread", "squeezed", "summed"), FLOAT) | {"size": TensorProto.INT64}


def record_conversions(monkeypatch):
    """Return a list that grows by an item for each node that is converted."""
    converted: list[str] = []
    original = ConvertedNodes.record

    def record(self, attributes, made):
        converted.append(attributes["tvm_custom"]["name"])
        original(self, attributes, made)

    monkeypatch.setattr(ConvertedNodes, "record", record)
    return converted


@pytest.mark.parametrize("nodes", [STATIC, DATA_DEPENDENT], ids=["static", "data-dependent"])
def test_each_node_is_converted_once(nodes, monkeypatch, tmp_path):
    converted = record_conversions(monkeypatch)
    load_model(
        save(model(nodes, [value("x", [2, 3])], [value("y", None)]), tmp_path), {}, None, None
    )
    assert converted == [each.name for each in nodes]


def test_a_model_that_is_refused_is_converted_once(monkeypatch, tmp_path):
    converted = record_conversions(monkeypatch)
    made = model(REFUSED, [value("x", [2, 3])], [value("y", None)])
    with pytest.raises(ModelError, match="Unique 'Unique of y' along an axis"):
        load_model(save(made, tmp_path), {}, None, None)
    assert converted == [REFUSED[0].name]


@pytest.mark.parametrize("rows", [2, "rows"], ids=["static", "dynamic"])
def test_a_static_node_is_converted_alike_beside_dynamic_ones(rows, tmp_path):
    """`one` has a fixed shape; the shape of `x` is that of a static or of a dynamic model."""
    outputs = [value(name, None, kind) for name, kind in OUTPUTS.items()]
    made = model(
        [*GIVEN, node("Relu", ["x"])], [value("x", [rows, 3]), value("one", [1, 3])],
        [*outputs, value("y", None)], [ints("shape", 2, 3), ints("axis", 0)],
    )  # fmt: skip
    shapes = {} if rows == 2 else {"x": Input(shape=(rows, 3))}
    dimensions = {} if rows == 2 else {"rows": Dimension(max=4, likely=(2,))}
    module = load_model(save(made, tmp_path), shapes, None, None, dimensions).module
    text = module.script()
    assert [str(name.name_hint) for name in module.get_global_vars()] == ["main"]
    assert "R.broadcast_to(one, R.shape([2, 3]))" in text
    assert "R.squeeze(one, axis=[0])" in text
    assert 'R.const(3, "int64")' in text
