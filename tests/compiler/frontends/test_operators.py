"""The contract of `operators/`: what every record has to have, and cases that no other test has."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx import operators
from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.compiler.frontends.onnx.operator import MICROSOFT, ONNX, Operator
from autopipe.compiler.frontends.onnx.operators import OPERATORS, find_operator
from autopipe.compiler.frontends.onnx.reading.check_operators import MAX_OPSET, find_since_version
from autopipe.compiler.frontends.onnx.reading.gate import vet_model
from autopipe.compiler.frontends.onnx.rewriting import cleanup
from autopipe.errors import ModelError
from docs.operators_page import PAGE, describe_operators
from tests.compiler.frontends.models import compiled, model, run, save, value
from tests.compiler.frontends.test_new_operators import (
    by_onnx,
    case,
    check,
    floats,
    made_bytes,
    merged,
)
from tests.support.table import each_row

FOLDER = Path(operators.__file__).parent
TESTS = Path("tests")
IMPORTABLE = [operator for operator in OPERATORS.values() if operator.is_importable]


def test_every_operator_of_onnx_has_a_record():
    schemas = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ONNX}
    assert schemas == {name for domain, name in OPERATORS if domain == ONNX}


def test_the_newest_definition_of_each_operator_is_followed():
    ours = [operator for operator in IMPORTABLE if operator.domain == ONNX]
    newest = {operator.name: find_since_version(operator.name, MAX_OPSET) for operator in ours}
    assert {operator.name: operator.since for operator in ours} == newest


def test_every_file_is_in_the_table_and_every_record_in_one_file():
    families = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    table = (FOLDER / "__init__.py").read_text("utf-8")
    listed = re.findall(r'^    "(\w+)",$', table, re.MULTILINE)
    assert listed == sorted(families)
    records = [record for family in listed for record in getattr(operators, family).OPERATORS]
    assert len(records) == len(OPERATORS)


def test_each_record_says_one_way_to_import_it_or_why_there_is_none():
    for operator in OPERATORS.values():
        ways = [operator.converter, operator.body, operator.replaced_by]
        count = sum(way not in {None, ""} for way in ways)
        assert count == (0 if operator.refusal else 1), operator.name


def test_what_a_pass_replaces_is_the_work_of_a_pass_that_there_is():
    passes = {one.name for one in cleanup.CLEANUP}
    assert {one.replaced_by for one in IMPORTABLE if one.replaced_by} <= passes


def test_inputs_that_are_read_as_sizes_decide_a_shape():
    for operator in IMPORTABLE:
        assert set(operator.read_sizes) <= set(operator.deciding), operator.name


def refusal_without_inputs(operator, inputs=()):
    node = helper.make_node(operator.name, inputs, ["y"], "lonely", domain=operator.domain)
    names = filter(None, inputs)
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in names]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    opset = MAX_OPSET if find_since_version(operator.name, MAX_OPSET) == operator.since else 9
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    graph = helper.make_graph([node], "graph", given, [result])
    whole = helper.make_model(graph, opset_imports=imports)
    with pytest.raises(ModelError) as refused:
        vet_model(whole.SerializeToString(), Path("m.onnx"), {})
    return str(refused.value)


def test_a_missing_input_is_named_with_its_node():
    free = {"Constant", "Loop", "Optional", "OptionalHasElement", "SequenceEmpty"}
    for operator in IMPORTABLE:
        if operator.name not in free:
            told = refusal_without_inputs(operator)
            assert re.fullmatch(rf"{operator.name} 'lonely' is not given its input '\w+'", told), (
                f"{operator.domain}::{operator.name}: {told}"
            )


@each_row(
    "domain, name, inputs, missing",
    [
        (ONNX, "Conv", ["x"], "W"),
        (ONNX, "Conv", ["", "w"], "X"),
        (ONNX, "Concat", ["x", ""], "inputs"),
        (ONNX, "Clip", ["", "x"], "input"),
        (MICROSOFT, "FusedMatMul", ["x", ""], "B"),
        (MICROSOFT, "QLinearAdd", ["x", "s", "", "x", "s"], "C_scale"),
    ],
)
def test_an_empty_name_is_a_missing_input(domain, name, inputs, missing):
    told = refusal_without_inputs(OPERATORS[domain, name], inputs)
    assert told == f"{name} 'lonely' is not given its input {missing!r}"


def test_inputs_are_those_of_the_definition():
    for operator in IMPORTABLE:
        if operator.domain != ONNX:
            continue
        places = {*operator.steering, *operator.deciding, *operator.read_sizes, *operator.weights}
        most = onnx.defs.get_schema(operator.name, MAX_OPSET).max_input
        assert all(place < most for place in places), operator.name


def test_every_importable_operator_is_in_a_test():
    text = "\n".join(path.read_text("utf-8") for path in TESTS.rglob("*.py"))
    words = set(re.findall(r"\w+", text))
    assert [operator.name for operator in IMPORTABLE if operator.name not in words] == []


def test_the_page_is_current():
    assert PAGE.read_text("utf-8") == describe_operators(), "make gen"


def test_a_domain_has_two_names():
    node = helper.make_node("Relu", ["x"], ["y"], domain="ai.onnx")
    found = find_operator(node)
    assert isinstance(found, Operator)
    assert found.domain == ONNX
    node.domain = MICROSOFT
    assert find_operator(node) is None


ROWS = floats(2, 4, 16)
BY_ONNX = [
    case("CastLike", {"x": floats(3) * 9}, {"like": np.zeros(1, np.int32)}, made_of="int32"),
    case("AffineGrid", {"x": floats(1, 2, 3)}, {"size": np.array([1, 1, 4, 5])}),
    case("SwiGLU", {"x": ROWS, "gate": floats(2, 4, 16, seed=1)}),
    case("BlackmanWindow", {"x": floats(9)}, {"n": np.int64(9)}, order=["n"]),
    case("HammingWindow", {"x": floats(9)}, {"n": np.int64(9)}, order=["n"], periodic=0),
    case("HannWindow", {"x": floats(8)}, {"n": np.int64(8)}, order=["n"]),
    case("MelWeightMatrix", {"x": floats(8)},
         {"bins": np.int64(8), "length": np.int64(16), "rate": np.int64(8192),
          "low": np.float32(0), "high": np.float32(4096)},
         order=["bins", "length", "rate", "low", "high"]),
    case("LinearAttention", {"q": floats(1, 5, 8), "k": floats(1, 5, 8, seed=1),
                             "v": floats(1, 5, 8, seed=2)},
         outputs=("y", "state"), q_num_heads=2, kv_num_heads=2, update_rule="linear"),
    case("CausalConvWithState", {"x": floats(1, 3, 7), "w": floats(3, 1, 4, seed=1)},
         outputs=("y", "state")),
]  # fmt: skip


def test_operators_compute_what_onnx_says(tmp_path):
    check(BY_ONNX, by_onnx, tmp_path, opset=MAX_OPSET)


INDICES = np.array([[0, 1, 2, 0], [1, 2, 0, 2]])
REGIONS = np.array([[0, 0, 0, 7, 7], [0, 2, 1, 5, 6]], np.float32)
BYTES = {"s": np.float32(0.1), "z": np.uint8(120), "t": np.float32(0.05), "u": np.uint8(90)}
WORDS = {"words": np.array([[1, 2, 0]], np.int32), "segments": np.array([[0, 1, 1]], np.int32)}
TABLES = {"t": floats(4, 8), "p": floats(3, 8, seed=1), "g": floats(2, 8, seed=2),
          "scale": floats(8), "bias": floats(8, seed=1)}  # fmt: skip
BY_ONNXRUNTIME = [
    case("MaxRoiPool", {"x": floats(1, 3, 8, 8)}, {"r": REGIONS}, pooled_shape=[2, 2]),
    case("QLinearWhere", {"x": made_bytes(2, 3), "v": made_bytes(2, 3, seed=1)},
         {"c": np.array([[True, False, True]] * 2), **BYTES}, domain=MICROSOFT,
         order=["c", "x", "s", "z", "v", "t", "u", "s", "z"]),
    case("MatMulIntegerToFloat", {"a": made_bytes(3, 8)},
         {"b": made_bytes(8, 5, seed=1), **BYTES}, domain=MICROSOFT, made_of="float32",
         order=["a", "b", "s", "t", "z", "u"]),
]  # fmt: skip


def test_operators_compute_what_onnxruntime_does(tmp_path):
    check(BY_ONNXRUNTIME, partial(run, level="ENABLE"), tmp_path, opset=17, atol=1.001)


PACKED = made_bytes(6, 3, 8)
SCALES = np.abs(floats(6, 3, seed=1))
LONG = floats(2, 40)
BY_BITS = [
    case("MatMulNBits", {"x": LONG}, {"w": PACKED, "s": SCALES.reshape(-1)}, domain=MICROSOFT,
         K=40, N=6, bits=4, block_size=16),
    case("MatMulNBits", {"x": LONG},
         {"w": PACKED, "s": SCALES.reshape(-1), "z": made_bytes(6 * 2, seed=3)},
         domain=MICROSOFT, K=40, N=6, bits=4, block_size=16),
    case("MatMulNBits", {"x": LONG},
         {"w": made_bytes(6, 3, 16), "s": SCALES.reshape(-1), "b": floats(6)}, domain=MICROSOFT,
         order=["x", "w", "s", "", "", "b"], K=40, N=6, bits=8, block_size=16),
]  # fmt: skip


def test_weights_of_few_bits(tmp_path):
    check(BY_BITS, partial(run, level="ENABLE"), tmp_path, opset=21, atol=1e-2)


LEFT, RIGHT = floats(2, 3, 8), floats(2, 8, 5, seed=1)
FUSED = [
    case("FusedMatMul", {"a": LEFT, "b": RIGHT}, domain=MICROSOFT),
    case("FusedMatMul", {"a": LEFT}, {"b": floats(5, 8, seed=1)}, domain=MICROSOFT,
         alpha=0.25, transB=1),
    case("FusedMatMul", {"a": LEFT.swapaxes(1, 2).copy(), "b": RIGHT}, domain=MICROSOFT, transA=1),
    case("FusedMatMul", {"a": floats(8, 3), "b": floats(5, 8, seed=1)}, domain=MICROSOFT,
         alpha=-2.0, transA=1, transB=1),
    case("FusedMatMul", {"a": floats(8), "b": RIGHT}, domain=MICROSOFT, transA=1),
]  # fmt: skip


def test_fused_products(tmp_path):
    check(FUSED, partial(run, level="ENABLE"), tmp_path, opset=11)


def test_fused_products_that_transpose_batches_are_refused(tmp_path):
    made, _ = merged([case("FusedMatMul", {"a": LEFT, "b": RIGHT}, domain=MICROSOFT,
                           name="scores", transBatchA=1, transBatchB=1)], 17)  # fmt: skip
    told = "FusedMatMul '.*scores' with transBatchA and transBatchB is not supported"
    with pytest.raises(ModelError, match=told):
        load_model(save(made, tmp_path), {}, None, None)


@each_row(
    "attributes, told",
    [
        ({"K": 40, "block_size": 16}, "attribute N has to be a number above 0"),
        ({"K": 40, "N": 6}, "attribute block_size has to be a number above 0"),
        ({"K": 40, "N": 6, "block_size": 0}, "attribute block_size has to be a number above 0"),
        ({"K": 40, "N": 6, "block_size": 16, "bits": 2}, "weights of 2 bits"),
        ({"K": 40, "N": 6, "block_size": 16, "bits": "few"}, "MatMulNBits .*: ValueError"),
    ],
)
def test_a_body_of_wrong_attributes_is_refused_in_a_line(tmp_path, attributes, told):
    stored = {"w": PACKED, "s": SCALES.reshape(-1)}
    made, _ = merged([case("MatMulNBits", {"x": LONG}, stored, domain=MICROSOFT, **attributes)], 21)
    with pytest.raises(ModelError, match=told):
        load_model(save(made, tmp_path), {}, None, None)


def test_embeddings_and_their_mask(tmp_path):
    embed = case(
        "EmbedLayerNormalization", WORDS, TABLES, domain=MICROSOFT, made_of="float32",
        order=["words", "segments", "t", "p", "g", "scale", "bias"], outputs=("o", "m"),
    )  # fmt: skip
    embed[0].output[1].type.tensor_type.elem_type = TensorProto.INT32
    check([embed], partial(run, level="ENABLE"), tmp_path, opset=17)


def test_scatter_as_it_was_first_defined(tmp_path):
    inputs = {"x": floats(3, 4), "u": floats(2, 4)}
    scatter = case("Scatter", inputs, {"at": INDICES}, order=["x", "at", "u"], axis=0)
    check([scatter], partial(run, level="ENABLE"), tmp_path, opset=10)


def test_sequences_and_optional_values(tmp_path):
    node = helper.make_node
    nodes = [
        node("SequenceConstruct", ["x", "x"], ["pair"]),
        node("Neg", ["x"], ["less"]),
        node("SequenceInsert", ["pair", "less", "zero"], ["three"]),
        node("SequenceErase", ["three", "one"], ["two"]),
        node("ConcatFromSequence", ["two"], ["y"], axis=0),
        node("SplitToSequence", ["y"], ["parts"], axis=0, keepdims=1),
        node("SequenceAt", ["parts", "zero"], ["first"]),
        node("SequenceLength", ["parts"], ["length"]),
        node("SequenceEmpty", [], ["none"], dtype=TensorProto.FLOAT),
        node("SequenceInsert", ["none", "x"], ["single"]),
        node("SequenceAt", ["single", "zero"], ["same"]),
        node("Optional", ["same"], ["maybe"]),
        node("OptionalGetElement", ["maybe"], ["element"]),
        node("OptionalHasElement", ["maybe"], ["is_there"]),
    ]
    dtypes = {"length": TensorProto.INT64, "is_there": TensorProto.BOOL}
    names = ("y", "first", "length", "element", "is_there")
    results = [value(name, None, dtypes.get(name, TensorProto.FLOAT)) for name in names]
    stored = [numpy_helper.from_array(np.array(number), name)
              for name, number in (("zero", 0), ("one", 1))]  # fmt: skip
    made = model(nodes, [value("x", [2, 3])], results, stored)
    imported = load_model(save(made, tmp_path), {}, None, None)
    x = floats(2, 3)
    joined, first, length, element, is_there = compiled(imported, {"x": x})
    np.testing.assert_array_equal(joined, np.concatenate([-x, x]))
    np.testing.assert_array_equal(first, -x[:1])
    np.testing.assert_array_equal(element, x)
    assert (int(length), bool(is_there)) == (4, True)
