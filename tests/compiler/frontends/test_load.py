import hashlib
import os
import random
import signal

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.compiler.frontends.onnx.reading import gate
from autopipe.compiler.frontends.onnx.rewriting import graph_rewrite
from autopipe.config.model import Input, Weights
from autopipe.errors import AutopipeError, ConfigError, ModelError
from tests.compiler.frontends.models import (
    compiled,
    dense,
    external,
    ints,
    model,
    node,
    run,
    save,
    tensor,
    value,
)
from tests.support import hungry


def loaded(made, folder, inputs=None, weights=None, sha256=None):
    return load_model(save(made, folder), inputs or {}, weights, sha256)


def network():
    """A bit of everything: convolutions, norms, pooling, a residual sum, a shape, two outputs."""
    stored = [
        tensor("onnx::kernel", 8, 4, 3, 3), tensor("kernel", 8, 8, 1, 1), ints("shape", 0, -1),
        tensor("scale", 8), tensor("bias", 8), tensor("mean", 8), tensor("var", 8, fill=2),
        tensor("dense", 200, 5), tensor("limit", fill=6),
    ]  # fmt: skip
    nodes = [
        node("Conv", ["data.0/x", "onnx::kernel"], "a", pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["a", "scale", "bias", "mean", "var"], "b"),
        node("Relu", ["b"], "c"),
        node("Conv", ["c", "kernel"], "d"),
        node("Sum", ["c", "d"], "e"),
        node("Clip", ["e", "", "limit"], "f"),
        node("MaxPool", ["f"], "pooled", kernel_shape=[2, 2], strides=[2, 2]),
        node("Reshape", ["pooled", "shape"], "flat"),
        node("MatMul", ["flat", "dense"], "scores"),
    ]
    inputs = [value("data.0/x", ["n", 4, 10, 10]), value("unused", [2])]
    return model(nodes, inputs, [value("scores", ["n", 5]), value("pooled", None)], stored)


def some(inputs):
    return {each.name: np.random.default_rng(1).random(each.shape, "f") for each in inputs}


GIVEN = {"data.0/x": Input(shape=(2, 4, 10, 10), dtype="float32")}


def test_a_network_computes_what_the_reference_does(tmp_path, recwarn, capfd):
    made = network()
    imported = loaded(made, tmp_path, GIVEN)
    assert (len(recwarn), capfd.readouterr()) == (0, ("", ""))
    feeds = some(imported.inputs)
    imported.write_reference(tmp_path)
    expected = run(made, feeds)
    for other in (compiled(imported, feeds), run(tmp_path / "reference.onnx", feeds)):
        for ours, reference in zip(other, expected, strict=True):
            np.testing.assert_allclose(ours, reference, rtol=1e-4, atol=1e-4)


def test_the_model_is_described_in_its_own_names(tmp_path):
    path = save(network(), tmp_path)
    imported = load_model(path, GIVEN, None, None)
    described = [(each.name, each.shape, each.dtype) for each in imported.inputs]
    assert described == [("data.0/x", (2, 4, 10, 10), "float32"), ("unused", (2,), "float32")]
    described = [(each.name, each.shape, each.dtype) for each in imported.outputs]
    assert described == [("scores", (2, 5), "float32"), ("pooled", (2, 8, 5, 5), "float32")]
    assert (imported.name, imported.opset, imported.synthesized) == ("small", 17, False)
    assert imported.source_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert imported.warnings == ()


def test_weights_are_parameters_and_never_constants(tmp_path):
    import tvm
    from tvm import relax

    imported = loaded(network(), tmp_path, GIVEN)
    main = imported.module["main"]
    names = [each.name for each in main.params]
    assert names == ["data.0/x", "unused", *imported.weights]
    assert main.attrs["num_input"] == 2
    shapes = [tuple(int(dim) for dim in each.ty.shape) for each in main.params[2:]]
    assert shapes == [values.shape for values in imported.weights.values()]
    found: list[object] = []
    relax.analysis.post_order_visit(main, found.append)
    constants = [each.value.numpy() for each in found if isinstance(each, tvm.ir.GenericConst)]
    assert max(each.size for each in constants) == 1
    assert [str(name) for name in imported.module.get_global_vars()] == ['I.GlobalVar("main")']


def test_drawn_weights_are_what_the_reference_runs(tmp_path):
    imported = loaded(network(), tmp_path, GIVEN, Weights(seed=3))
    feeds = some(imported.inputs)
    imported.write_reference(tmp_path)
    reference = run(tmp_path / "reference.onnx", feeds)
    for ours, expected in zip(compiled(imported, feeds), reference, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)
    assert imported.synthesized
    assert not np.allclose(reference[0], run(network(), feeds)[0])


def test_what_steers_an_operator_stays_a_constant(tmp_path):
    made = model(
        [node("Resize", ["x", "", "scales"], mode="nearest")],
        [value("x", [1, 1, 2, 2])],
        [value("y", None)],
        [numpy_helper.from_array(np.array([1, 1, 2, 3], np.float32), "scales")],
    )
    imported = loaded(made, tmp_path)
    assert imported.weights == {}
    assert imported.outputs[0].shape == (1, 1, 4, 6)
    feeds = some(imported.inputs)
    np.testing.assert_allclose(compiled(imported, feeds), run(made, feeds))


def test_the_reference_keeps_its_weights_aligned(tmp_path):
    loaded(network(), tmp_path, GIVEN).write_reference(tmp_path)
    reference = onnx.load(tmp_path / "reference.onnx", load_external_data=False)
    places = [
        int(entry.value)
        for stored in reference.graph.initializer
        for entry in stored.external_data
        if entry.key == "offset"
    ]
    assert len(places) == 7
    assert [place % 64 for place in places] == [0] * 7


@pytest.mark.fault("B14")
def test_a_crash_in_a_parser_is_one_line(tmp_path, monkeypatch):
    vet, parent = gate.vet_model, os.getpid()

    def crash(*arguments):
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGSEGV)
        return vet(*arguments)

    monkeypatch.setattr(gate, "vet_model", crash)
    with pytest.raises(ModelError, match=r"model\.onnx: checking the model crashed \(signal 11\)"):
        loaded(dense(), tmp_path)


@pytest.mark.fault("B14", "G15")
@pytest.mark.parametrize("what", ["takes longer than 1 s", "needs more than 64 MiB"])
def test_a_parser_that_hangs_or_hoards_is_bounded(tmp_path, monkeypatch, what):
    vet, parent = gate.vet_model, os.getpid()

    def greedy(*arguments):
        while os.getpid() != parent and "longer" in what:
            pass
        return vet(*arguments) if os.getpid() == parent else hungry.take(2**30)

    monkeypatch.setattr(gate, "vet_model", greedy)
    monkeypatch.setattr(gate, "SECONDS", 1)
    monkeypatch.setattr(gate, "_MEMORY", 64 << 20)
    with pytest.raises(ModelError, match=what):
        loaded(dense(), tmp_path)


def test_large_generated_weights_can_be_drawn(tmp_path, monkeypatch):
    """They are in no file, and stay out of the clean-up."""
    monkeypatch.setattr(graph_rewrite, "_LARGE", 0)
    made = model(
        [
            node("ConstantOfShape", ["shape"], "first"),
            node("ConstantOfShape", ["shape"], "second"),
            node("MatMul", ["x", "first"], "a"),
            node("MatMul", ["a", "second"]),
        ],
        [value("x", [2, 3])],
        [value("y", None)],
        [ints("shape", 3, 3)],
    )
    imported = loaded(made, tmp_path, weights=Weights())
    assert set(imported.weights) == {"first", "second"}
    imported.write_reference(tmp_path)
    feeds = some(imported.inputs)
    reference = run(tmp_path / "reference.onnx", feeds)
    np.testing.assert_allclose(compiled(imported, feeds), reference, rtol=1e-5)


def test_loading_twice_gives_the_same_bytes(tmp_path):
    import tvm

    digests = set()
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        imported = loaded(network(), folder, GIVEN, Weights())
        imported.write_reference(folder)
        text = tvm.ir.save_json(imported.module).encode()
        files = [(folder / f"reference.{end}").read_bytes() for end in ("onnx", "weights")]
        digests.add(hashlib.sha256(b"".join([text, *files])).hexdigest())
    assert len(digests) == 1


def test_a_branch_can_be_imported(tmp_path):
    def branch(kind, name):
        graph = [node(kind, ["x", "w"], name)]
        return helper.make_graph(graph, kind, [], [value(name, [2, 3])])

    nodes = [
        node("ReduceMax", ["x"], "largest", keepdims=0),
        node("Greater", ["largest", "limit"], "c"),
        node("If", ["c"], then_branch=branch("Add", "t"), else_branch=branch("Mul", "e")),
    ]
    stored = [tensor("w", 2, 3), tensor("limit", fill=1)]
    made = model(nodes, [value("x", [2, 3])], [value("y", [2, 3])], stored)
    imported = loaded(made, tmp_path)
    for fill in (0, 2):
        feeds = {"x": np.full((2, 3), fill, np.float32)}
        np.testing.assert_allclose(compiled(imported, feeds), run(made, feeds), rtol=1e-6)


def test_the_digest_is_an_assertion(tmp_path):
    path = save(dense(), tmp_path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert load_model(path, {}, None, digest).source_sha256 == digest
    with pytest.raises(ModelError, match=f"the file's sha256 is {digest}, .* {'0' * 64}"):
        load_model(path, {}, None, "0" * 64)


@pytest.mark.fault("B16")
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = save(dense(), tmp_path)
    admit = gate.admit_model

    def slow(*arguments):
        save(dense(rows=3), tmp_path)
        return admit(*arguments)

    monkeypatch.setattr(gate, "admit_model", slow)
    with pytest.raises(ModelError, match="changed while it was read"):
        load_model(path, {}, None, None)


def test_errors_name_the_file_once(tmp_path):
    made = dense()
    external(made, "../secret")
    with pytest.raises(ModelError) as refused:
        loaded(made, tmp_path)
    assert str(refused.value).count("model.onnx") == 1


def test_wrong_inputs_are_the_pipelines_fault(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'x'"):
        loaded(dense(), tmp_path, {"X": Input(shape=(1,))})


@pytest.mark.fault("B17")
def test_constant_and_infinite_weights_are_mentioned(tmp_path):
    made = dense()
    made.graph.initializer[0].CopyFrom(tensor("weight", 3, 4, fill=0.02))
    made.graph.initializer[1].CopyFrom(tensor("bias", 4, fill=np.inf))
    constant, infinite = sorted(loaded(made, tmp_path).warnings, key=len, reverse=True)
    assert "synthesize" in constant
    assert infinite == "weight 'bias' holds numbers that are not finite"


@pytest.mark.fault("B17")
def test_tensors_without_elements_end_well(tmp_path):
    nodes, rest = [node("Concat", ["x", "none"], axis=0)], tensor("none", 0, 3)
    good = model(nodes, [value("x", [2, 3])], [value("y", [2, 3])], [rest])
    assert load_model(save(good, tmp_path), {}, None, None).outputs[0].shape == (2, 3)


def test_an_output_that_is_a_shape_is_a_tensor(tmp_path):
    nodes = [node("Shape", ["x"]), node("Relu", ["x"], "r")]
    outputs = [value("y", [1], TensorProto.INT64), value("r", [4])]
    imported = loaded(model(nodes, [value("x", [4])], outputs), tmp_path)
    shape, _ = compiled(imported, {"x": np.ones(4, "float32")})
    assert (shape.dtype, shape.tolist()) == ("int64", [4])


@pytest.mark.fault("B10")
def test_an_output_shape_that_depends_on_data_is_open(tmp_path):
    made = model([node("NonZero", ["x"])], [value("x", [4])], [value("y", None, 7)])
    (output,) = loaded(made, tmp_path).outputs
    assert output.shape == (1, -1)


@pytest.mark.fault("B9")
def test_what_tvm_can_not_import_is_one_line(tmp_path):
    made = model(
        [node("Upsample", ["x", "scales"])],
        [value("x", [1, 1, 2, 2])],
        [value("y", None)],
        [tensor("scales", 4, fill=2)],
        opset=9,
    )
    made.graph.node[0].attribute.append(helper.make_attribute("mode", "cubic"))
    said = r"TVM cannot import node 'Upsample of y', Upsample of float32 \[1, 1, 2, 2\], float32 "
    with pytest.raises(ModelError, match=said) as refused:
        loaded(made, tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.fault("B13")
@pytest.mark.parametrize("flips", [40, pytest.param(400, marks=pytest.mark.slow)])
def test_flipped_bits_end_well(tmp_path, flips):
    """A damaged model is imported or refused, and never crashes."""
    path = save(network(), tmp_path)
    good = path.read_bytes()
    chance = random.Random(flips)
    ends: set[int] = set()
    for _ in range(flips):
        data = bytearray(good)
        # most bytes are weights, where a flip is a good model: aim at the rest too
        for place in (chance.randrange(len(data)), chance.choice([0, 1]) * chance.randrange(900)):
            data[place] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        try:
            load_model(path, GIVEN, None, None)
            ends.add(0)
        except AutopipeError as error:
            ends.add(error.exit_code)
    assert {0, 3} <= ends <= {0, 2, 3}
