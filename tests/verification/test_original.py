"""The reference of a build is the file that its author wrote, where onnxruntime takes that."""

import numpy as np
import onnx
import pytest
from onnx import helper
from safetensors.numpy import load_file

from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.config.model import Input
from autopipe.store import arrays
from autopipe.verification.reference import MODEL, ORIGINAL, expect
from tests.compiler.frontends.models import external, model, node, save, tensor, value


def answer(folder, **inputs):
    case = folder / "case.safetensors"
    arrays.save({name: np.asarray(given, "f") for name, given in inputs.items()}, case)
    return load_file(expect(("onnxruntime",), folder, [case]).files[0])["y"]


def unary(kind):
    return model([node(kind, ["x"])], [value("x", [2])], [value("y", [2])])


@pytest.mark.parametrize("taken", [True, False])
def test_the_original_counts_where_it_is_taken(tmp_path, taken):
    onnx.save(unary("Abs"), tmp_path / MODEL)
    save(unary("Neg"), tmp_path, ORIGINAL)
    if not taken:
        (tmp_path / ORIGINAL).write_bytes(b"no model")
    expected = [-1, 2] if taken else [1, 2]
    np.testing.assert_array_equal(answer(tmp_path, x=[1, -2]), expected)


def test_functions_and_branches_are_as_they_were_written(tmp_path):
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ours", 1)]
    body = [helper.make_node("Add", ["a", "a"], ["b"])]
    twice = helper.make_function("ours", "Twice", ["a"], ["b"], body, opsets)
    branches = {
        f"{name}_branch": helper.make_graph(
            [node(kind, ["t", "w"], name)], name, [], [value(name, [2])]
        )
        for name, kind in (("then", "Mul"), ("else", "Add"))
    }
    made = model(
        [
            helper.make_node("Twice", ["x"], ["t"], domain="ours"),
            node("Constant", [], "c", value=helper.make_tensor("c", 9, [], [True])),
            node("If", ["c"], "p", **branches), node("Mul", ["p", "factor"]),
        ],
        [value("x", [2]), value("factor", [])], [value("y", [2])], [tensor("w", 2, fill=3)],
        functions=[twice], opsets=opsets,
    )  # fmt: skip
    data = external(made)
    (tmp_path / "data.bin").write_bytes(data)
    inputs = {"factor": Input(shape=(), value=0.5)}
    write_reference = load_model(save(made, tmp_path), inputs, None, None).write_reference
    assert write_reference is not None
    write_reference(tmp_path)
    (tmp_path / "data.bin").unlink()
    original = onnx.load(tmp_path / ORIGINAL)
    assert [each.name for each in original.functions] == ["Twice"]
    assert [each.op_type for each in original.graph.node] == ["Twice", "Constant", "If", "Mul"]
    (tmp_path / MODEL).unlink()
    np.testing.assert_array_equal(answer(tmp_path, x=[1, -2]), [3, -6])
