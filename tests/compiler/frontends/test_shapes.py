import re

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from autopipe.compiler.frontends.onnx.reading import shapes
from autopipe.config.model import Input
from autopipe.errors import ConfigError, ModelError
from tests.compiler.frontends.models import model, node, value
from tests.support.table import each_row


def two_inputs(first=("batch", 3), second=("batch", 3)):
    inputs = [value("tokens", first), value("mask", second)]
    return model([node("Add", ["tokens", "mask"])], inputs, [value("y", None)])


def bound(made, **given):
    inputs = {name: Input(shape=shape) for name, shape in given.items()}
    return {each.name: each.shape for each in shapes.bind_inputs(made.graph, inputs)}


def test_a_symbol_bound_for_one_input_holds_for_all():
    assert bound(two_inputs(), tokens=(8, 3)) == {"tokens": (8, 3), "mask": (8, 3)}


def test_the_model_itself_is_bound_and_inferred():
    made = two_inputs()
    bound(made, tokens=(8, 3))
    assert shapes.read_static_shapes(shapes.infer_shapes(made).graph)["y"] == (8, 3)


@pytest.mark.fault("B10")
def test_an_unknown_rank_is_given_by_the_pipeline():
    assert bound(two_inputs(first=None), tokens=(2, 3), mask=(2, 3))["tokens"] == (2, 3)


@pytest.mark.fault("B10")
@pytest.mark.parametrize(
    ("made", "told"),
    [
        (two_inputs(), "dimension 0 ('batch') of input 'tokens' is open"),
        (two_inputs(first=(None, 3)), "dimension 0 of input 'tokens' is open"),
        (two_inputs(first=None), "input 'tokens' has no shape"),
    ],
)
def test_an_open_dimension_names_what_fixes_it(made, told):
    with pytest.raises(ModelError) as refused:
        bound(made)
    assert told in str(refused.value)
    assert "model.inputs.tokens.shape" in str(refused.value)


@pytest.mark.fault("B10")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"token": (8, 3)}, "model.inputs.token: .* did you mean 'tokens'"),
        ({"zzz": (8, 3)}, "it has 'tokens', 'mask'"),
        ({"tokens": (8, 4)}, "model.inputs.tokens.shape: dimension 1 is 4, the model has 3"),
        ({"tokens": (8,)}, r"\[8\] has 1 dimensions, the model has 2"),
        ({"tokens": (8, 3), "mask": (7, 3)}, "dimension 0 is 7, the model has batch = 8"),
    ],
)
def test_a_pipeline_that_contradicts_the_model_is_refused(given, told):
    with pytest.raises(ConfigError, match=told):
        bound(two_inputs(), **given)


def test_a_dtype_is_an_assertion():
    made = two_inputs()
    inputs = {"tokens": Input(shape=(8, 3), dtype="float16")}
    with pytest.raises(ConfigError, match="dtype: float16 is given, the model has float32"):
        shapes.bind_inputs(made.graph, inputs)


@pytest.mark.fault("B11")
@pytest.mark.parametrize("shape", [(-1, 3), (2**40, 3)])
def test_an_absurd_input_is_refused(shape):
    with pytest.raises(ModelError, match="input 'tokens'"):
        bound(two_inputs(first=shape, second=(1, 3)))


@pytest.mark.fault("B10")
def test_notes_on_shapes_in_the_file_are_not_believed():
    made = model(
        [node("Relu", ["x"], "a"), node("Relu", ["a"])], [value("x", [2])], [value("y", [2])]
    )
    made.graph.value_info.append(value("a", [5], TensorProto.INT64))
    assert shapes.read_static_shapes(shapes.infer_shapes(made).graph)["a"] == (2,)


def test_an_input_with_a_value_is_a_constant():
    made = model(
        [node("Equal", ["rate", "known"], "same")],
        [value("rate", [], TensorProto.INT64), value("known", [], TensorProto.INT64)],
        [value("same", [], TensorProto.BOOL)],
    )
    left = shapes.fix_inputs(
        made.graph, {"rate": Input(shape=(), value=8000), "known": Input(shape=())}
    )
    assert [given.name for given in made.graph.input] == ["known"]
    assert list(left) == ["known"]
    (stored,) = made.graph.initializer
    assert numpy_helper.to_array(stored) == 8000
    assert stored.data_type == TensorProto.INT64


@each_row(
    "shape, number, told",
    [
        ((), 0.5, "model.inputs.rate.value: 0.5 is no int64"),
        ((1,), 1, "has 1 dimensions"),
    ],
)
def test_a_value_that_is_not_the_inputs_is_refused(shape, number, told):
    made = model([node("Abs", ["rate"])], [value("rate", [], TensorProto.INT64)], [])
    with pytest.raises(ConfigError, match=re.escape(told)):
        shapes.fix_inputs(made.graph, {"rate": Input(shape=shape, value=number)})


def test_an_error_of_propagated_data_alone_is_none_of_the_model():
    axes = numpy_helper.from_array(np.array([-1]), "axes")
    row = numpy_helper.from_array(np.arange(20, dtype=np.float32), "row")
    nodes = [node("Unsqueeze", ["x", "axes"], "column"), node("Sub", ["column", "row"])]
    made = model(nodes, [value("x", [60])], [value("y", None)], [axes, row])
    assert shapes.read_static_shapes(shapes.infer_shapes(made).graph)["y"] == (60, 20)
    made.graph.input[0].CopyFrom(value("x", [2, 60]))
    nodes[1].input[0] = "x"
    made.graph.node[1].CopyFrom(nodes[1])
    with pytest.raises(ModelError, match="Sub"):
        shapes.infer_shapes(made)
