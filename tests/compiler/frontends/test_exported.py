"""What exporters write and onnxruntime takes: it runs each row here."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.compiler.frontends.onnx.reading import gate
from autopipe.config.model import Input
from tests.compiler.frontends.models import (
    compiled,
    dense,
    ints,
    model,
    node,
    run,
    save,
    tensor,
    value,
)
from tests.support.table import each_row

X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)


def vetted(made, path, **shapes):
    inputs = {name: Input(shape=shape) for name, shape in shapes.items()}
    return gate.vet_model(made.SerializeToString(), path, inputs)


def dims(value):
    return value.type.tensor_type.shape.dim


def negative(graph):
    dims(graph.input[0])[0].dim_value = -1
    dims(graph.output[0])[0].dim_value = -1


def unnamed(graph):
    for dim in (*dims(graph.input[0]), *dims(graph.output[0])):
        dim.dim_param = "?"


def twice(graph):
    graph.initializer.insert(1, tensor("bias", 4, fill=9))


def nameless(graph):
    graph.initializer.extend([tensor("", 2), tensor("", 2)])


def backwards(graph):
    graph.node.reverse()


def domains(graph):
    for each in graph.node:
        each.domain = "ai.onnx"


def noted(graph):
    graph.value_info.append(value("product", [7, -1, 7]))


def listed(graph):
    graph.input.insert(0, value("weight", [3, 4]))
    graph.input.append(value("bias", [4]))


def untyped(graph):
    graph.output[0].ClearField("type")


def untitled(graph):
    graph.ClearField("name")


CHANGES = (
    negative, unnamed, twice, nameless, backwards, domains, noted, listed, untyped, untitled
)  # fmt: skip


@each_row("change", CHANGES)
def test_another_way_to_write_it_is_the_same_model(tmp_path, change):
    made, plain = dense(), vetted(dense(), tmp_path)
    change(made.graph)
    found = vetted(made, tmp_path, x=(2, 3))
    assert list(found.model.graph.node) == list(plain.model.graph.node)
    assert found.weights == plain.weights
    assert found.inputs == plain.inputs
    assert found.shapes == plain.shapes
    kinds = [each.type.tensor_type.elem_type for each in found.model.graph.output]
    assert kinds == [TensorProto.FLOAT]
    np.testing.assert_array_equal(run(made, {"x": X}), run(dense(), {"x": X}))


def test_sizes_without_a_name_are_not_taken_for_one(tmp_path):
    made = dense()
    unnamed(made.graph)
    assert gate.read_declared_shapes(made.SerializeToString())["x"] == (None, None)
    assert vetted(made, tmp_path, x=(5, 3)).shapes["y"] == (5, 4)


def test_what_a_branch_reads_is_in_front_of_it(tmp_path):
    branches = {
        name: helper.make_graph(
            [node(kind, ["late"], name)], "", [], [helper.make_tensor_value_info(name, 1, [-1, 3])]
        )
        for name, kind in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }
    inputs = [value("x", [2, 3]), value("flag", [], TensorProto.BOOL)]
    nodes = [node("If", ["flag"], **branches), node("Abs", ["x"], "late")]
    made = model(nodes, inputs, [value("y", None)])
    assert [each.op_type for each in vetted(made, tmp_path).model.graph.node] == ["Abs", "If"]


def floats():
    constants = [
        helper.make_node("Constant", [], ["a"], value_float=2.5),
        helper.make_node("Constant", [], ["b"], value_floats=[1.0, 2.0, 3.0]),
        helper.make_node("Constant", [], ["axes"], value_ints=[0]),
    ]
    nodes = [node("Mul", ["x", "a"], "m"), node("Add", ["m", "b"], "s")]
    nodes.append(node("Unsqueeze", ["s", "axes"]))
    return model(constants + nodes, [value("x", [2, 3])], [value("y", None)])


def clipped(low, high):
    """As PaddlePaddle writes it: bounds are lists of one number."""
    bounds = [
        helper.make_node("Constant", [], ["low"], value=tensor("low", *low, fill=-0.5)),
        helper.make_node("Constant", [], ["high"], value=tensor("high", *high, fill=0.5)),
    ]
    nodes = [*bounds, node("Clip", ["x", "low", "high"])]
    return model(nodes, [value("x", [2, 3])], [value("y", None)])


def resized():
    """As PyTorch and tf2onnx wrote it for opset 11: sizes, and scales without any number."""
    stored = [tensor("roi", 0), tensor("scales", 0), ints("sizes", 1, 1, 4, 6), ints("four", 0, 1)]
    nodes = [
        node("Unsqueeze", ["x", "four"], "image"),
        node("Resize", ["image", "roi", "scales", "sizes"]),
    ]
    return model(nodes, [value("x", [2, 3])], [value("y", None)], stored, opset=13)


def ranged():
    """As PaddlePaddle writes it: the limit of a range is a list of one number."""
    nodes = [
        node("Shape", ["x"], "shape"),
        helper.make_node("Split", ["shape"], ["rows", "columns"], name="split", axis=0),
        node("Range", ["zero", "columns", "one"], "range"),
        node("Cast", ["range"], "offset", to=TensorProto.FLOAT),
        node("Add", ["x", "offset"]),
    ]
    stored = [ints("zero", 0), ints("one", 1)]
    return model(nodes, [value("x", [2, 3])], [value("y", None)], stored, opset=13)


@each_row("made", [floats(), ranged(), clipped([1], [1]), clipped([1], []), resized()])
def test_it_computes_what_onnxruntime_computes(tmp_path, made):
    found = compiled(load_model(save(made, tmp_path), {}, None, None), {"x": X})
    for ours, reference in zip(found, run(made, {"x": X}), strict=True):
        np.testing.assert_allclose(ours, reference, rtol=1e-6)


def test_what_is_in_the_usual_form_stays(tmp_path):
    made = floats()
    made.graph.node[0].CopyFrom(helper.make_node("Constant", [], ["a"], value=tensor("a")))
    made.graph.node[1].CopyFrom(helper.make_node("Constant", [], ["b"], value=tensor("b", 3)))
    before = made.SerializeToString()
    assert gate.parse_model(before).SerializeToString() == before
    assert numpy_helper.to_array(tensor("a")).shape == ()
