import io
import zipfile
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from autopipe.compiler.frontends.onnx.operator import ONNX
from autopipe.compiler.frontends.onnx.operators import OPERATORS
from autopipe.compiler.frontends.onnx.reading import gate, source
from autopipe.compiler.frontends.onnx.reading.check_operators import MAX_OPSET, MIN_OPSET
from autopipe.errors import ModelError
from tests.compiler.frontends.models import dense, ints, model, node, save, tensor, value, vet
from tests.support.table import each_row


def refusal(made, tmp_path):
    with pytest.raises(ModelError) as refused:
        vet(made, tmp_path)
    message = str(refused.value)
    assert "\n" not in message
    return message


def test_a_good_model_passes_with_its_weights_apart(tmp_path):
    vetted = vet(dense(), tmp_path)
    assert list(vetted.weights) == ["weight", "bias"]
    assert [(each.name, each.shape) for each in vetted.inputs] == [("x", (2, 3))]
    assert vetted.shapes["product"] == (2, 4)
    assert vetted.opset == 17
    assert not vetted.model.graph.initializer


def zipped():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", b"cos\nsystem\n")
    return file.getvalue()


@pytest.mark.fault("B1", "B2", "B15")
@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "empty"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "no ONNX model"),
        (b"a text, not a model\n", "no ONNX model"),
        (dense().SerializeToString()[:-40], "no ONNX model, or part of one"),
        (onnx.ModelProto(ir_version=8).SerializeToString(), "no graph"),
        (b"\x80\x04\x95\x0c\x00\x00\x00\x00\x00\x00\x00\x8c\x02os", "pickle files can run code"),
        (zipped(), "pickle files can run code"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path, data, told):
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=told):
        gate.vet_model(source.read_model_file(path), path, {})


@pytest.mark.fault("B15")
@pytest.mark.parametrize("name", ["a.pt", "a.pth", "a.pkl"])
def test_a_pickle_by_name_is_refused(tmp_path, name):
    with pytest.raises(ModelError, match="pickle"):
        source.read_model_file(save(dense(), tmp_path, name))


def test_a_folder_and_a_missing_file_are_refused(tmp_path):
    with pytest.raises(ModelError, match="directory"):
        source.read_model_file(tmp_path)
    with pytest.raises(ModelError, match="No such file"):
        source.read_model_file(tmp_path / "missing.onnx")


@pytest.mark.fault("B12")
def test_more_than_one_protobuf_can_hold_is_refused(tmp_path):
    path = tmp_path / "model.onnx"
    with path.open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(ModelError, match="external data"):
        source.read_model_file(path)


@pytest.mark.fault("B7")
def test_an_unknown_domain_is_refused(tmp_path):
    made = dense()
    made.graph.node[0].domain = "com.evil"
    made.opset_import.append(helper.make_opsetid("com.evil", 1))
    message = refusal(made, tmp_path)
    assert "com.evil::MatMul" in message
    assert "MatMul of product" in message


@pytest.mark.fault("B8")
@pytest.mark.parametrize("version", [1, MIN_OPSET - 1, MAX_OPSET + 1, 999])
def test_an_opset_out_of_range_is_refused(tmp_path, version):
    assert f"opset {version}" in refusal(dense(opset=version), tmp_path)


@pytest.mark.fault("B8")
@pytest.mark.parametrize("version", [MIN_OPSET, MAX_OPSET])
def test_the_ends_of_the_range_pass(tmp_path, version):
    assert vet(dense(opset=version), tmp_path).opset == version


@pytest.mark.fault("B8")
def test_a_definition_that_no_converter_follows_is_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.setitem(OPERATORS, (ONNX, "Add"), replace(OPERATORS[ONNX, "Add"], since=13))
    assert "1 x Add as opset 14 defines it" in refusal(dense(opset=14), tmp_path)
    assert vet(dense(opset=13), tmp_path).opset == 13


@pytest.mark.fault("B8")
def test_no_opset_or_two_are_refused(tmp_path):
    made = dense()
    made.opset_import.append(helper.make_opsetid("ai.onnx", 16))
    assert "exactly one" in refusal(made, tmp_path)
    del made.opset_import[:]
    assert "exactly one" in refusal(made, tmp_path)


@pytest.mark.fault("B8")
@pytest.mark.parametrize("version", [1, 999])
def test_an_unknown_format_version_is_refused(tmp_path, version):
    made = dense()
    made.ir_version = version
    assert f"format version {version}" in refusal(made, tmp_path)


@pytest.mark.fault("B9")
def test_all_unsupported_operators_are_listed_once_with_counts(tmp_path):
    made = model(
        [node("StringSplit", ["x"], "a"), node("StringSplit", ["x"], "b"),
         node("TfIdfVectorizer", ["x", "a"]), node("BiasGelu", ["a", "b", "y"], "z")],
        [value("x", [2, 2])],
        [value("z", [1])],
    )  # fmt: skip
    message = refusal(made, tmp_path)
    assert "operators of strings, which are not computed: 2 x StringSplit, 1 x TfIdf" in message
    assert "operators that cannot be imported: 1 x BiasGelu" in message


@pytest.mark.fault("B9")
def test_operators_inside_a_branch_count_too(tmp_path):
    inner = helper.make_graph([node("StringSplit", ["x"], "a")], "inner", [], [value("a", [])])
    branches = {"then_branch": inner, "else_branch": inner}
    made = model([node("If", ["c"], **branches)], [value("c", [], TensorProto.BOOL)], [])
    assert "2 x StringSplit" in refusal(made, tmp_path)


@pytest.mark.fault("B11")
def test_branches_nested_too_deep_are_refused(tmp_path):
    graph = helper.make_graph([node("Relu", ["x"], "y")], "inner", [], [value("y", [1])])
    for _ in range(17):
        both = node("If", ["c"], then_branch=graph, else_branch=graph)
        both.attribute[0].g.ClearField("node")  # or each level doubles the model
        graph = helper.make_graph([both], "outer", [], [value("y", [1])])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert "nested deeper" in refusal(made, tmp_path)


def test_functions_are_inlined(tmp_path):
    twice = helper.make_function(
        "own", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], "b")], [helper.make_opsetid("", 17)]
    )
    made = model(
        [helper.make_node("Twice", ["x"], ["y"], domain="own")],
        [value("x", [2])],
        [value("y", [2])],
        functions=[twice],
        opsets=[helper.make_opsetid("", 17), helper.make_opsetid("own", 1)],
    )
    assert [each.op_type for each in vet(made, tmp_path).model.graph.node] == ["Add"]


@pytest.mark.fault("B11")
@each_row("domain, name, refused", [
    ("", "Relu", True), ("ai.onnx", "Relu", True), ("com.microsoft", "FastGelu", True),
    ("", "Gelu", False), ("ours", "Relu", False), ("com.microsoft", "OursAlone", False),
])  # fmt: skip
def test_a_function_named_like_an_operator_is_refused(domain, name, refused):
    """Opset 17 has no Gelu; ONNX leaves open which of two meanings a call has."""
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function(
        domain, name, ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], opsets
    )
    made = model(
        [helper.make_node(name, ["x"], ["y"], domain=domain)], [value("x", [2])],
        [value("y", [2])], functions=[function],
        opsets=[*opsets, *([] if domain in {"", "ai.onnx"} else [helper.make_opsetid(domain, 1)])],
    )  # fmt: skip
    if refused:
        with pytest.raises(ModelError, match=f"local function '{name}' is named like an operator"):
            gate.parse_model(made.SerializeToString())
    else:
        assert [each.op_type for each in gate.parse_model(made.SerializeToString()).graph.node] == [
            "Neg"
        ]


def test_functions_in_a_circle_are_refused(tmp_path):
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function(
            "own", name, ["a"], ["b"], [helper.make_node(other, ["a"], ["b"], domain="own")], opsets
        )
        for name, other in (("Ping", "Pong"), ("Pong", "Ping"))
    ]
    made = model(
        [helper.make_node("Ping", ["x"], ["y"], domain="own")],
        [value("x", [2])],
        [value("y", [2])],
        functions=functions,
        opsets=opsets,
    )
    assert "circle: own::Ping, own::Pong" in refusal(made, tmp_path)


def kept(name):
    return helper.make_node("Constant", [], [name], value=tensor("", 4))


@pytest.mark.fault("B10", "B11")
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda g: g.ClearField("output"), "no outputs"),
        (lambda g: g.ClearField("node"), "no nodes"),
        (lambda g: g.node.append(node("Relu", ["x"], "product")), "SSA"),
        (lambda g: g.node[1].output.__setitem__(0, "z"), "output 'y' is not"),
        (lambda g: g.node.append(kept("bias")), "more than one tensor"),
        (lambda g: g.initializer[0].dims.__setitem__(0, -3), "negative"),
        (lambda g: g.initializer[0].dims.__setitem__(0, 2**40), "more than"),
        (lambda g: g.initializer[0].ClearField("raw_data"), "needs 12 values of data and has 0"),
        (
            lambda g: setattr(g.initializer[0], "raw_data", b"1234"),
            "needs 48 bytes of data and has 4",
        ),
        (lambda g: setattr(g.initializer[0], "data_type", 16), "element type 16"),
        (lambda g: setattr(g.initializer[0], "data_type", 99), "element type 99"),
        (lambda g: g.sparse_initializer.add(), "element type 0"),
        (lambda g: g.initializer[0].segment.SetInParent(), "stored in segments"),
        (lambda g: setattr(g.input[0].type.tensor_type, "elem_type", 8), "element type 8"),
        (lambda g: g.input[0].type.sequence_type.SetInParent(), "not a tensor"),
    ],
)
def test_a_wrong_graph_is_refused(tmp_path, change, told):
    made = dense()
    change(made.graph)
    assert told in refusal(made, tmp_path)


def nameless(graph, op, inputs, **attributes):
    graph.node.append(helper.make_node(op, inputs, ["made"], **attributes))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda g: nameless(g, "Conv", ["x"]), "Conv 'made' is not given its input 'W'"),
        (lambda g: nameless(g, "Concat", ["x"]), "node 'made' (Concat): Requ"),
        (lambda g: nameless(g, "Relu", ["x"], odd=1), "node 'made' (Relu): Un"),
        (lambda g: nameless(g, "Softmax", ["x"], axis=9), "node name: made): "),
        (lambda g: nameless(g, "Relu", ["nowhere"]), "'nowhere' of node: name: m"),
        (lambda g: setattr(g.input[0], "name", ""), "input 0 of the graph has no name"),
    ],
)
def test_what_the_checker_says_names_the_node_or_the_value(tmp_path, change, told):
    made = dense()
    change(made.graph)
    assert told in refusal(made, tmp_path)


@pytest.mark.fault("B11")
def test_a_graph_in_a_circle_is_refused(tmp_path):
    nodes = [node("Add", ["x", "b"], "a"), node("Relu", ["a"], "b")]
    made = model(nodes, [value("x", [2])], [value("b", [2])])
    assert "topological" in refusal(made, tmp_path)


@pytest.mark.fault("B17")
def test_a_graph_that_ignores_its_inputs_is_refused(tmp_path):
    made = model([node("Relu", ["w"])], [value("x", [2])], [value("y", [2])], [tensor("w", 2)])
    assert "no output depends on an input" in refusal(made, tmp_path)


def test_an_input_may_be_read_inside_a_branch_alone(tmp_path):
    branches = {
        name: helper.make_graph([node(kind, ["x"], name)], name, [], [value(name, [2])])
        for name, kind in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }
    flag = helper.make_tensor("flag", TensorProto.BOOL, [], [True])
    made = model([node("If", ["flag"], **branches)], [value("x", [2])], [value("y", [2])], [flag])
    assert vet(made, tmp_path).shapes["y"] == (2,)


@pytest.mark.fault("B10")
@pytest.mark.parametrize("shape", [[2, 5], [2, 4, 1], []])
def test_a_declared_shape_of_an_output_is_not_believed(tmp_path, shape):
    made = dense()
    made.graph.output[0].CopyFrom(value("y", shape))
    assert vet(made, tmp_path).shapes["y"] == (2, 4)


def test_operators_that_do_not_fit_are_refused(tmp_path):
    made = dense()
    made.graph.initializer[0].CopyFrom(tensor("weight", 5, 4))
    assert "MatMul" in refusal(made, tmp_path)


@pytest.mark.fault("B11")
def test_an_absurd_value_in_between_is_refused(tmp_path):
    made = model(
        [node("Expand", ["x", "size"], "big"), node("ReduceSum", ["big"], "y", keepdims=0)],
        [value("x", [1])],
        [value("y", [])],
        [ints("size", 2**40)],
    )
    assert "more than" in refusal(made, tmp_path)


def test_initializers_among_the_inputs_are_no_inputs(tmp_path):
    made = dense()
    made.ir_version = 3
    made.graph.input.extend([value("weight", [3, 4]), value("bias", [4])])
    vetted = vet(made, tmp_path)
    assert [each.name for each in vetted.inputs] == ["x"]
    assert [each.name for each in vetted.model.graph.input] == ["x", "weight", "bias"]


def test_shapes_stay_and_weights_go_wherever_they_are_stored(tmp_path):
    made = model(
        [
            helper.make_node("Constant", [], ["kernel"], value=tensor("", 3, 4)),
            node("MatMul", ["x", "kernel"], "product"),
            node("Reshape", ["product", "shape"], "flat"),
            node("Clip", ["flat", "low"]),
        ],
        [value("x", [2, 3])],
        [value("y", [8])],
        [ints("shape", 8), tensor("low", fill=0)],
    )
    vetted = vet(made, tmp_path)
    assert list(vetted.weights) == ["kernel"]
    assert {each.name for each in vetted.model.graph.initializer} == {"shape", "low"}
    assert vetted.shapes["flat"] == (8,)


@each_row("to", [TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2])
def test_a_cast_to_numbers_that_numpy_lacks_is_refused(to):
    nodes = [node("Cast", ["x"], "q", to=to), node("Cast", ["q"], to=TensorProto.FLOAT)]
    made = model(nodes, [value("x", [4])], [value("y", [4])], opset=21)
    with pytest.raises(ModelError, match="output 'q' of Cast 'Cast of q' has element type"):
        gate.vet_model(made.SerializeToString(), Path("m.onnx"), {})


def test_axes_from_the_end_are_refused_where_onnx_has_none(tmp_path):
    nodes = [node("Squeeze", ["x"], axes=[-1])]
    made = model(nodes, [value("x", [3, 1])], [value("y", [3])], opset=10)
    assert "Squeeze 'Squeeze of y' counts axes from the end" in refusal(made, tmp_path)
    made.opset_import[0].version = 11
    assert vet(made, tmp_path).shapes["y"] == (3,)
