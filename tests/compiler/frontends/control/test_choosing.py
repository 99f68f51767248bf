"""An If whose condition constants decide, and whose other branch fits nothing."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.errors import ModelError
from tests.compiler.frontends.models import ints, model, node, save, value


def body(*nodes):
    return helper.make_graph(nodes, "branch", [], [helper.make_empty_tensor_value_info("out")])


def choosing(length):
    """A model that takes a row of `x` where `sizes` has as many elements as `length` says."""
    then = body(helper.make_node("Split", ["sizes"], ["a", "b", "c", "d"], num_outputs=4),
                helper.make_node("Reshape", ["x", "a"], ["out"]))  # fmt: skip
    other = body(helper.make_node("Neg", ["x"], ["out"]))
    made = [
        node("Size", ["sizes"], "count"),
        constant(length),
        node("Equal", ["count", "four"], "is_four"),
        helper.make_node("If", ["is_four"], ["y"], then_branch=then, else_branch=other),
    ]
    return model(made, [value("x", [2])], [value("y", [2])], [ints("sizes", 1, 2, 3)],
                 opset=18)  # fmt: skip


def constant(length):
    tensor = numpy_helper.from_array(np.array(length), "")
    return helper.make_node("Constant", [], ["four"], value=tensor)


def test_a_branch_that_is_never_taken_may_fit_nothing(tmp_path):
    imported = load_model(save(choosing(4), tmp_path), {}, None, None)
    assert "If" not in str(imported.module)
    assert "negative" in str(imported.module)


@pytest.mark.parametrize("condition", [[], [True, True]])
def test_a_condition_that_is_no_truth_is_left_to_the_checker(tmp_path, condition):
    made = choosing(4)
    made.graph.node[-1].input[0] = "odd"
    made.graph.initializer.append(numpy_helper.from_array(np.array(condition, bool), "odd"))
    with pytest.raises(ModelError):
        load_model(save(made, tmp_path), {}, None, None)


def test_an_if_without_branches_is_refused(tmp_path):
    made = choosing(4)
    del made.graph.node[-1].attribute[:]
    made.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    with pytest.raises(ModelError):
        load_model(save(made, tmp_path), {}, None, None)
