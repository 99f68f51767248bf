"""An error inside TVM's importer says which node it was of; the gate lets these models not pass."""

import pytest
from onnx import TensorProto, helper

from autopipe.compiler.frontends.onnx.conversion.relax import to_relax
from autopipe.compiler.frontends.onnx.reading import shapes
from autopipe.errors import ModelError
from tests.compiler.frontends.models import model, node, value
from tests.support.table import each_row

INPUTS = [value("a", [1, 2, 3]), value("b", [1, 2, 4])]


def failure(nodes, inputs=INPUTS, stored=()):
    made = model(nodes, inputs, [value("y", None)], stored)
    with pytest.raises(ModelError) as refused:
        to_relax(made, shapes.list_unbound_inputs(made.graph), [])
    return str(refused.value)


def concat(name="join", inputs=("a", "b")):
    return helper.make_node("Concat", inputs, ["y"], name=name, axis=1)


def branches():
    inner = helper.make_graph([concat("inside")], "then", [], [value("y", None)])
    other = helper.make_graph([node("Relu", ["a"], "z")], "else", [], [value("z", None)])
    return node("If", ["flag"], then_branch=inner, else_branch=other)


@each_row(
    "made, says",
    [
        (concat(), "node 'join', Concat of float32 [1, 2, 3], float32 [1, 2, 4]: "),
        (concat(""), "node 'y', Concat of float32 [1, 2, 3], float32 [1, 2, 4]: "),
        (concat("\x1b[31m\n" + "x" * 999), r"node '\x1b[31m\nxxx"),
        (concat(inputs=["a"] * 9 + ["b"]), ", float32 [1, 2, 3], 4 more: "),
        (branches(), "node 'inside', Concat of float32 [1, 2, 3]"),
        (node("MatMul", ["a", "b"]), "node 'MatMul of y', MatMul of float32 [1, 2, 3], float32"),
    ],
)
def test_the_node_its_operator_and_its_inputs_are_named(made, says):
    flag = helper.make_tensor("flag", TensorProto.BOOL, [], [True])
    said = failure([made], stored=[flag])
    assert said.startswith("TVM cannot import node '")
    assert says in said
    assert "do the sizes in model.inputs fit the model?" in said
    assert len(said) < 1000
    assert said.isprintable()
