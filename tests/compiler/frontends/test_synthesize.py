import hashlib

import numpy as np
import pytest
from onnx import helper

from autopipe.compiler.frontends.draw import draw_normal
from autopipe.compiler.frontends.onnx.facts.synthesize import (
    has_constant_kernels,
    synthesize_weights,
)
from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.compiler.frontends.onnx.reading.weights import attach_weights
from autopipe.compiler.step_counter import count_with
from autopipe.config.model import Model, Weights
from autopipe.config.paths import find_model_path
from autopipe.host import copy_file
from tests.compiler.frontends.models import (
    dense,
    ints,
    model,
    node,
    run,
    save,
    tensor,
    value,
    vet,
)  # fmt: skip

LIGHT = "pkg:onnx/backend/test/data/light/light_{}.onnx"


def drawn(made, tmp_path, given, seed=0):
    found = vet(made, tmp_path)
    return synthesize_weights(found.model.graph, given, found.shapes, seed), found.model.graph


def test_numbers_are_normal_enough():
    numbers = draw_normal("key", 200_000)
    assert abs(numbers.mean()) < 0.01
    assert abs(numbers.std() - 1) < 0.01
    assert 0.66 < (abs(numbers) < 1).mean() < 0.70


def test_numbers_are_the_same_on_every_machine():
    """The digest of raw bits, exactly: a change here changes every synthetic weight."""
    digest = hashlib.sha256(draw_normal("key", 70_000).tobytes()).hexdigest()
    assert digest.startswith("4dbf9e5d095f1521")


def test_each_weight_has_its_own_numbers_and_each_seed(tmp_path):
    zeros = {"weight": np.zeros((3, 4), np.float32), "bias": np.zeros(4, np.float32)}
    first, _ = drawn(dense(), tmp_path, zeros)
    again, _ = drawn(dense(), tmp_path, zeros)
    other, _ = drawn(dense(), tmp_path, zeros, seed=1)
    assert np.array_equal(first["weight"], again["weight"])
    assert not np.array_equal(first["weight"], other["weight"])
    assert len(np.unique(np.concatenate([first["weight"].ravel(), first["bias"]]))) == 16


def test_the_bytes_of_weights_are_counted_while_they_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(copy_file, "MIB", 1)
    counts = []
    path = save(dense(), tmp_path)
    with count_with(lambda message, total, **_: lambda done: counts.append((message, done, total))):
        load_model(path, {}, Weights(), None)
    assert [count for count in counts if "of weights" in count[0]] == [
        ("MiB of weights read", 48, 64), ("MiB of weights read", 64, 64),
        ("MiB of weights drawn", 48, 64), ("MiB of weights drawn", 64, 64),
    ]  # fmt: skip


def test_a_kernel_is_scaled_by_its_fan_in(tmp_path):
    made = model(
        [node("Conv", ["x", "wide"], "a"), node("Relu", ["a"], "b"), node("Conv", ["b", "next"])],
        [value("x", [1, 64, 8, 8])],
        [value("y", None)],
        [tensor("wide", 96, 64, 3, 3, fill=1), tensor("next", 96, 96, 1, 1, fill=1)],
    )
    weights, _ = drawn(
        made, tmp_path, {"wide": np.ones((96, 64, 3, 3), "f"), "next": np.ones((96, 96, 1, 1), "f")}
    )
    assert weights["wide"].std() == pytest.approx((1 / (64 * 9)) ** 0.5, rel=0.02)
    assert weights["next"].std() == pytest.approx((2 / 96) ** 0.5, rel=0.02)  # behind a ReLU


def test_generators_go_and_shapes_stay(tmp_path):
    fill = helper.make_tensor("", 1, [1], [0.02])
    made = model(
        [
            node("ConstantOfShape", ["kernel shape"], "kernel", value=fill),
            node("ConstantOfShape", ["other shape"], "other", value=fill),
            node("MatMul", ["x", "kernel"], "product"),
            node("Reshape", ["product", "flat"], "a"),
            node("Max", ["a", "other"]),
        ],
        [value("x", [2, 3])],
        [value("y", [8])],
        [ints("kernel shape", 3, 4), ints("other shape", 8), ints("flat", 8)],
    )
    weights, graph = drawn(made, tmp_path, {})
    assert list(weights) == ["kernel"]
    assert [each.op_type for each in graph.node] == ["ConstantOfShape", "MatMul", "Reshape", "Max"]
    assert [each.name for each in graph.input] == ["x", "kernel"]
    attach_weights(graph, weights)
    assert run(made_of(graph), {"x": np.ones((2, 3), "f")})[0].shape == (8,)


def made_of(graph):
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_role_is_found_behind_unsqueeze_and_transpose(tmp_path):
    made = model(
        [
            node("Transpose", ["kernel"], "turned", perm=[1, 0]),
            node("MatMul", ["x", "turned"], "a"),
            node("Unsqueeze", ["factor", "axes"], "row"),
            node("Mul", ["a", "row"]),
        ],
        [value("x", [2, 300])],
        [value("y", [2, 100])],
        [tensor("kernel", 100, 300, fill=1), tensor("factor", 100, fill=7), ints("axes", 0)],
    )
    given = {"kernel": np.ones((100, 300), "f"), "factor": np.full(100, 7, "f")}
    weights, _ = drawn(made, tmp_path, given)
    assert weights["kernel"].std() == pytest.approx(300**-0.5, rel=0.02)
    assert weights["factor"].mean() == pytest.approx(1, abs=0.1)


def test_masks_and_integers_are_left_alone(tmp_path):
    made = model(
        [
            node("Add", ["x", "mask"], "a"),
            node("Gather", ["table", "ids"], "b"),
            node("Add", ["a", "b"]),
        ],
        [value("x", [4, 4])],
        [value("y", None)],
        [tensor("mask", 4, 4, fill=-1e9), tensor("table", 9, 4, fill=0), ints("ids", 0, 1, 2, 3)],
    )
    mask = np.full((4, 4), -1e9, np.float32)
    weights, _ = drawn(made, tmp_path, {"mask": mask, "table": np.zeros((9, 4), np.float32)})
    assert weights["mask"] is mask
    assert weights["table"].std() > 0.5


def test_constant_kernels_are_noticed(tmp_path):
    found = vet(dense(), tmp_path)
    bias = np.arange(4, dtype=np.float32)
    for kernel, constant in ((np.full((3, 4), 0.02, "f"), True), (np.eye(3, 4, dtype="f"), False)):
        weights = {"weight": kernel, "bias": bias}
        assert has_constant_kernels(found.model.graph, weights, found.shapes) is constant


FAST = ["squeezenet", "shufflenet", "inception_v1", "densenet121"]
SLOW = ["resnet50", "inception_v2", "zfnet512", "bvlc_alexnet", "vgg19"]


@pytest.mark.parametrize("name", FAST + [pytest.param(n, marks=pytest.mark.slow) for n in SLOW])
def test_activations_stay_of_order_one_through_deep_networks(tmp_path, name):
    path = find_model_path(Model(path=LIGHT.format(name)), tmp_path)
    imported = load_model(path, {}, Weights(), None)
    assert imported.write_reference is not None
    imported.write_reference(tmp_path)
    made, shown = with_activations(tmp_path / "reference.onnx")
    shape = imported.inputs[0].shape
    feeds = {imported.inputs[0].name: np.random.default_rng(0).standard_normal(shape, "f")}
    results = dict(zip(shown, run(made, feeds), strict=True))
    output = results[imported.outputs[0].name].ravel()
    assert output.std() > 0.1 * abs(output).mean()
    if "prob" in imported.outputs[0].name or "softmax" in imported.outputs[0].name:
        assert output.max() < 0.9
    for key, result in results.items():
        if key != imported.outputs[0].name:
            assert 1e-3 < np.sqrt(np.square(result, dtype=float).mean()) < 1e3, key


def with_activations(path):
    """Return the file of a model that also gives its activations, and all output names."""
    import onnx

    made = onnx.load(path, load_external_data=False)
    names = [each.name for each in made.graph.output]
    kinds = {"Conv", "Relu", "BatchNormalization", "Sum", "Add", "Gemm", "Concat"}
    for each in made.graph.node:
        if each.op_type in kinds and each.output[0] not in names:
            made.graph.output.append(onnx.ValueInfoProto(name=each.output[0]))
            names.append(each.output[0])
    file = path.with_name("activations.onnx")
    file.write_bytes(made.SerializeToString())
    return file, names
