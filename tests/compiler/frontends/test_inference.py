"""Types that follow from what a model computes, not from what it or onnx says of it."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.compiler.frontends.onnx.reading.inference import infer_strictly, infer_types
from autopipe.compiler.frontends.onnx.reading.value_types import read_type
from autopipe.errors import ModelError
from autopipe.processes.sandbox import run_in_sandbox
from tests.compiler.frontends.models import FLOAT, compiled, ints, model, node, save, value
from tests.support.table import each_row

BOOL, INT, BYTE = TensorProto.BOOL, TensorProto.INT64, TensorProto.INT8


def shape_of(made):
    """Return the shape that is inferred for the output of a model; None where it is open."""
    (output,) = infer_strictly(made).graph.output
    return read_type(output.type).shape


def filled(*nodes, stored=()):
    """Return a model that fills a shape `row` that is computed of that of x, [3, 5]."""
    whole = [node("Shape", ["x"], "s"), *nodes, node("ConstantOfShape", ["row"])]
    return model(whole, [value("x", [3, 5])], [value("y", None)], stored)


STACKED = [node("Unsqueeze", ["s", "zero"], "u"), node("Concat", ["u", "u"], "m", axis=0),
           node("Gather", ["m", "one"], "row")]  # fmt: skip
STORED = [ints("zero", 0), numpy_helper.from_array(np.array(1), "one"), ints("many", 100, 1)]


@each_row(
    "nodes, right",
    [
        (STACKED, {None, (3, 5)}),
        ([node("Cast", ["s"], "b", to=BOOL), node("Cast", ["b"], "row", to=INT)], {None, (1, 1)}),
        ([node("Mul", ["s", "many"], "l"), node("Cast", ["l"], "b", to=BYTE),
          node("Cast", ["b"], "row", to=INT)], {None, (44, 5)}),
        ([node("Mul", ["s", "many"], "row")], {(300, 5)}),
        ([node("Gather", ["s", "one"], "g"), node("Unsqueeze", ["g", "zero"], "u"),
          node("Concat", ["u", "u"], "row", axis=0)], {(5, 5)}),
    ],
)  # fmt: skip
def test_a_shape_that_is_computed_is_right_or_open(nodes, right):
    assert shape_of(filled(*nodes, stored=STORED)) in right


def test_the_model_has_its_own_nodes_afterwards():
    made = filled(*STACKED, stored=STORED)
    inferred = infer_types(made)
    assert list(inferred.graph.node) == list(made.graph.node)
    assert {value.name for value in inferred.graph.value_info} <= {"s", "u", "m", "row"}


def test_a_vector_may_become_a_matrix_and_be_multiplied(tmp_path):
    row = np.arange(20, dtype=np.float32)
    nodes = [node("Unsqueeze", ["x", "last"], "u"), node("Mul", ["u", "row"])]
    stored = [ints("last", -1), numpy_helper.from_array(row, "row")]
    made = model(nodes, [value("x", [8])], [value("y", [8, 20])], stored)
    x = np.arange(8, dtype=np.float32)
    (y,) = compiled(load_model(save(made, tmp_path), {}, None, None), {"x": x})
    np.testing.assert_array_equal(y, x[:, None] * row)


def branches(shape, kind="Neg", **attributes):
    """Return a model whose branches declare a shape for what they compute of x, [1, 4]."""
    graphs = [
        helper.make_graph([node(kind, ["x"], name, **attributes)], name, [], [value(name, shape)])
        for name in ("then", "else")
    ]
    chosen = node("If", ["c"], "b", then_branch=graphs[0], else_branch=graphs[1])
    nodes = [chosen, node("Add", ["b", "x"])]
    given = [value("x", [1, 4]), value("c", [], BOOL)]
    return model(nodes, given, [value("y", None)])


@each_row("shape", [[], [1, 4], [7, 7], [4], None, ["n", "m"]])
def test_branches_may_declare_what_they_like(shape, tmp_path_factory):
    path = save(branches(shape), tmp_path_factory.mktemp("branches"))
    feeds = {"x": np.ones((1, 4), np.float32), "c": np.ones((), bool)}
    np.testing.assert_array_equal(
        compiled(load_model(path, {}, None, None), feeds)[0], np.zeros((1, 4))
    )


def test_branches_without_operands_are_compiled(tmp_path):
    graphs = [
        helper.make_graph([node("Cast", ["v"], name, to=FLOAT)], name, [], [value(name, [])])
        for name in ("then", "else")
    ]
    chosen = node("If", ["c"], "b", then_branch=graphs[0], else_branch=graphs[1])
    given = [value("x", [4]), value("c", [], BOOL)]
    made = model([chosen, node("Add", ["b", "x"])], given, [value("y", [4])], [ints("v", 2)])
    feeds = {"x": np.ones(4, np.float32), "c": np.ones((), bool)}
    imported = load_model(save(made, tmp_path), {}, None, None)
    np.testing.assert_array_equal(compiled(imported, feeds)[0], np.full(4, 3))


@pytest.mark.fault("B10")
@each_row("declared", [[7, 7], [], [6], [2, 3, 1], ["n", 4]])
def test_a_wrong_declared_output_is_a_warning(declared, tmp_path_factory):
    made = model([node("Relu", ["x"])], [value("x", [2, 3])], [value("y", declared)])
    imported = load_model(save(made, tmp_path_factory.mktemp("declared")), {}, None, None)
    assert imported.outputs[0].shape == (2, 3)
    assert "and [2, 3] comes out" in imported.warnings[0]


def test_a_declared_output_of_another_type_is_refused(tmp_path):
    made = model([node("Relu", ["x"])], [value("x", [2, 3])], [value("y", [2, 3], INT)])
    with pytest.raises(ModelError, match="elem type differs"):
        load_model(save(made, tmp_path), {}, None, None)


def test_an_error_in_a_branch_says_which_node_does_not_fit(tmp_path):
    made = branches(None)
    for body in made.graph.node[0].attribute:
        body.g.node[0].CopyFrom(node("MatMul", ["x", "x"], body.g.output[0].name))
    with pytest.raises(ModelError, match=r"op_type:If.*op_type:MatMul.*Incompatible dimensions"):
        load_model(save(made, tmp_path), {}, None, None)


def test_long_lists_are_no_messages(tmp_path):
    """A list that is doubled 22 times; one message for each element would take a gigabyte."""
    stored = [ints("l0", 3, 4)]
    nodes = [node("Concat", [f"l{at}", f"l{at}"], f"l{at + 1}", axis=0) for at in range(22)]
    nodes += [node("Add", ["l22", "x"])]
    made = model(nodes, [value("x", [1], INT)], [value("y", None, INT)], stored)
    assert run_in_sandbox(lambda: str(shape_of(made)), memory=2**28, seconds=60) == f"({2**23},)"


def test_a_long_stored_list_stays_stored():
    long = numpy_helper.from_array(np.arange(10_000), "long")
    nodes = [node("Gather", ["long", "zero"], "row"), node("ConstantOfShape", ["row"])]
    made = model(nodes, [value("x", [3])], [value("y", None)], [ints("zero", 7), long])
    inferred = infer_types(made)
    assert [tensor.name for tensor in inferred.graph.initializer] == ["zero", "long"]
    assert [each.name for each in inferred.graph.input] == ["x"]
    assert list(inferred.graph.node) == list(made.graph.node)
