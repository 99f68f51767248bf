from collections import Counter

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.reading import gate, source
from autopipe.compiler.frontends.onnx.reading.weights import attach_weights
from autopipe.compiler.frontends.onnx.rewriting import graph_rewrite
from autopipe.compiler.frontends.onnx.rewriting.cleanup import CLEANUP, clean_model
from autopipe.compiler.pass_observer import observe_passes
from tests.compiler.frontends.models import ints, model, node, run, save, tensor, value


def cleaned(made, tmp_path, **shapes):
    """Clean a model up, and check that it still computes the same."""
    path = save(made, tmp_path)
    vetted = gate.vet_model(source.read_model_file(path), path, {})
    weights = {name: numpy_helper.to_array(stored) for name, stored in vetted.weights.items()}
    result, kept = clean_model(vetted.model, weights)
    names = [each.name for each in result.graph.input]
    assert names == [*(each.name for each in vetted.inputs), *kept]
    attach_weights(result.graph, kept)
    random = np.random.default_rng(0)
    feeds = {each.name: random.standard_normal(each.shape, "f") for each in vetted.inputs}
    for before, after in zip(run(made, feeds), run(result, feeds), strict=True):
        assert np.abs(before).max() > 0
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5)
    return Counter(each.op_type for each in result.graph.node), result.graph


def norm(data, output, channels, **attributes):
    names = [f"{output}.{part}" for part in ("scale", "bias", "mean", "var")]
    stored = [tensor(name, channels) for name in names]
    variance = np.abs(numpy_helper.to_array(stored[3])) + 0.5
    stored[3] = numpy_helper.from_array(variance.astype("f"), names[3])
    return node("BatchNormalization", [data, *names], output, **attributes), stored


IMAGE = [value("x", [2, 6, 5, 5])]


def test_batch_norm_goes_into_the_convolution_before_it(tmp_path):
    batch_norm, stored = norm("a", "y", 4, epsilon=1e-3)
    nodes = [node("Conv", ["x", "kernel"], "a"), batch_norm]
    made = model(nodes, IMAGE, [value("y", None)], [tensor("kernel", 4, 6, 3, 3), *stored])
    ops, graph = cleaned(made, tmp_path)
    assert ops == {"Conv": 1}
    assert len(graph.initializer) == 2


def test_batch_norm_without_a_convolution_is_one_scale_and_one_shift(tmp_path):
    first, stored = norm("x", "a", 6)
    second, more = norm("b", "y", 6, epsilon=0.1)
    made = model(
        [first, node("Relu", ["a"], "b"), second], IMAGE, [value("y", None)], [*stored, *more]
    )
    ops, graph = cleaned(made, tmp_path)
    assert ops == {"Mul": 2, "Add": 2, "Relu": 1}
    assert len(graph.initializer) == 4


def test_constant_scales_and_shifts_behind_it_join(tmp_path):
    batch_norm, stored = norm("x", "a", 6)
    made = model(
        [
            batch_norm,
            node("Unsqueeze", ["factor", "axes"], "column"),
            node("Mul", ["a", "column"], "b"),
            node("Add", ["offset", "b"], "c"),
            node("Mul", ["c", "two"], "d"),
            node("Relu", ["d"]),
        ],
        IMAGE,
        [value("y", None)],
        [*stored, tensor("factor", 6), ints("axes", 1, 2), tensor("offset", 1, 6, 1, 1),
         tensor("two", fill=2)],
    )  # fmt: skip
    assert cleaned(made, tmp_path)[0] == {"Mul": 1, "Add": 1, "Relu": 1}


@pytest.mark.parametrize(
    "operand", [tensor("c", 5), tensor("c", 6, 5, 1), tensor("c", 2, 6, 1, 1), tensor("c", 1, 5)]
)
def test_other_operands_do_not_join(tmp_path, operand):
    batch_norm, stored = norm("x", "a", 6)
    made = model(
        [batch_norm, node("Mul", ["a", "c"])], IMAGE, [value("y", None)], [*stored, operand]
    )
    assert cleaned(made, tmp_path)[0] == {"Mul": 2, "Add": 1}


def test_a_value_that_others_read_stays(tmp_path):
    batch_norm, stored = norm("x", "a", 6)
    nodes = [batch_norm, node("Mul", ["a", "two"], "b"), node("Sub", ["b", "a"])]
    outputs = [value("y", None), value("b", None)]
    made = model(nodes, IMAGE, outputs, [*stored, tensor("two", fill=2)])
    assert cleaned(made, tmp_path)[0] == {"Mul": 2, "Add": 1, "Sub": 1}


def test_a_convolution_that_others_read_keeps_its_kernel(tmp_path):
    batch_norm, stored = norm("a", "b", 4)
    nodes = [node("Conv", ["x", "kernel"], "a"), batch_norm, node("Sub", ["a", "b"])]
    made = model(nodes, IMAGE, [value("y", None)], [tensor("kernel", 4, 6, 3, 3), *stored])
    assert cleaned(made, tmp_path)[0] == {"Conv": 1, "Mul": 1, "Add": 1, "Sub": 1}


def test_a_value_that_a_branch_reads_stays(tmp_path):
    batch_norm, stored = norm("x", "a", 6)

    def branch(kind):
        inner = [node(kind, ["a", "factor"], f"{kind} result")]
        return helper.make_graph(inner, kind, [], [value(f"{kind} result", [2, 6, 5, 5])])

    both = node("If", ["c"], then_branch=branch("Add"), else_branch=branch("Mul"))
    made = model(
        [
            batch_norm,
            node("Mul", ["a", "factor"], "b"),
            node("ReduceMax", ["x"], "largest", keepdims=0),
            node("Greater", ["largest", "zero"], "c"),
            both,
        ],
        IMAGE,
        [value("y", None), value("b", None)],
        [*stored, tensor("factor", 6, 1, 1), tensor("zero", fill=0)],
    )
    assert cleaned(made, tmp_path)[0]["If"] == 1


def test_a_norm_of_vectors_works_too(tmp_path):
    batch_norm, stored = norm("x", "y", 6)
    made = model([batch_norm], [value("x", [3, 6])], [value("y", None)], stored)
    assert cleaned(made, tmp_path)[0] == {"Mul": 1, "Add": 1}


def test_what_does_nothing_in_inference_goes(tmp_path):
    nodes = [node("Dropout", ["x"], "a"), node("Identity", ["a"], "b"), node("Relu", ["b"])]
    ops, _ = cleaned(model(nodes, IMAGE, [value("y", None)]), tmp_path)
    assert ops == {"Relu": 1}


def test_a_dense_layer_on_a_sequence_stays_one_product(tmp_path):
    nodes = [node("MatMul", ["x", "w"], "a"), node("Add", ["a", "b"])]
    made = model(
        nodes, [value("x", [2, 4, 6])], [value("y", None)], [tensor("w", 6, 3), tensor("b", 3)]
    )
    assert cleaned(made, tmp_path)[0] == {"MatMul": 1, "Add": 1}


def test_large_weights_stay_out_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(graph_rewrite, "_LARGE", 24)
    batch_norm, stored = norm("a", "b", 4)
    nodes = [node("Conv", ["x", "kernel"], "a"), batch_norm, node("Sub", ["b", "offset"])]
    stored = [tensor("offset", 3), tensor("kernel", 4, 6, 3, 3), *stored]
    ops, graph = cleaned(model(nodes, IMAGE, [value("y", None)], stored), tmp_path)
    assert ops == {"Conv": 1, "Mul": 1, "Add": 1, "Sub": 1}
    assert "kernel" in {each.name for each in graph.initializer}


def test_inputs_and_outputs_keep_their_order(tmp_path):
    """An input that nothing reads is an input all the same."""
    inputs = [value(name, [2]) for name in ("unused", "z", "a")]
    outputs = [value(name, [2]) for name in ("last", "first")]
    made = model([node("Abs", ["z"], "first"), node("Neg", ["a"], "last")], inputs, outputs)
    _, graph = cleaned(made, tmp_path)
    assert [each.name for each in graph.input] == ["unused", "z", "a"]
    assert [each.name for each in graph.output] == ["last", "first"]


def test_constants_are_folded(tmp_path):
    made = model(
        [
            node("Shape", ["x"], "shape"),
            node("Gather", ["shape", "zero"], "rows"),
            node("Concat", ["rows", "rest"], "target", axis=0),
            node("Reshape", ["x", "target"]),
        ],
        IMAGE,
        [value("y", None)],
        [ints("zero", 0), ints("rest", -1)],
    )
    assert cleaned(made, tmp_path)[0] == {"Reshape": 1}


def test_what_a_block_of_a_swin_transformer_pads_by_is_folded(tmp_path):
    made = model(
        [
            node("Shape", ["x"], "shape"),
            node("Slice", ["shape", "second", "end"], "sides"),
            node("Mod", ["sides", "window"], "over"),
            node("Sub", ["window", "over"], "short"),
            node("Concat", ["none", "short"], "amounts", axis=0),
            node("Reshape", ["amounts", "column"], "rows"),
            node("Transpose", ["rows"], "columns", perm=[1, 0]),
            node("Reshape", ["columns", "all"], "pads"),
            node("Pad", ["x", "pads"]),
        ],
        IMAGE,
        [value("y", None)],
        [ints("second", 2), ints("end", 9), ints("window", 7), ints("none", 0, 0, 0, 0, 0, 0),
         ints("column", 2, 4), ints("all", -1)],
    )  # fmt: skip
    assert cleaned(made, tmp_path)[0] == {"Pad": 1}


def test_half_precision_stays(tmp_path):
    stored = [
        numpy_helper.from_array(np.full(6, fill, np.float16), name)
        for name, fill in (("s", 2), ("b", 1), ("m", 0), ("v", 1))
    ]
    made = model(
        [node("BatchNormalization", ["x", "s", "b", "m", "v"])],
        [value("x", [2, 6, 5, 5], TensorProto.FLOAT16)],
        [value("y", None, TensorProto.FLOAT16)],
        stored,
    )
    path = save(made, tmp_path)
    vetted = gate.vet_model(source.read_model_file(path), path, {})
    weights = {name: numpy_helper.to_array(each) for name, each in vetted.weights.items()}
    _, kept = clean_model(vetted.model, weights)
    assert {values.dtype.name for values in kept.values()} == {"float16"}


def test_passes_are_watched_and_written_without_weights(tmp_path):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    weight = numpy_helper.from_array(np.arange(4, dtype="float32"), "w")
    nodes = [
        helper.make_node("Add", ["x", "w"], ["sum"]),
        helper.make_node("Identity", ["sum"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "added", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with observe_passes(tmp_path) as observer:
        clean_model(model, {})
    wanted = [one.name for one in CLEANUP if not one.rewrites]  # it has nothing quantized
    assert list(observer.times) == list(dict.fromkeys(wanted))
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    simplified = next(text for name, text in texts.items() if "simplify" in name)
    assert "Identity" not in simplified
    assert "Add" in simplified
    assert all("float[4] w = " not in text for text in texts.values())
