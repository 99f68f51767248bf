"""A model that decides itself how many rows it works on, from its file to a package."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autopipe import open_package
from autopipe.api import flow
from autopipe.artifacts.library import BuiltLibrary
from autopipe.errors import ConfigError
from autopipe.tasks.task import read_tasks
from tests.compiler.frontends.models import run

ROWS, WIDE, MADE = 48, 32, 48


@pytest.fixture
def pipeline(tmp_path):
    """A dense layer over the rows whose marks are not 0, and what their sum is."""
    kernel = np.random.default_rng(0).standard_normal((WIDE, MADE), "f")
    stored = {"axis": np.array([0]), "kernel": kernel}
    nodes = [
        helper.make_node("NonZero", ["mark"], ["places"], name="marked"),
        helper.make_node("Squeeze", ["places", "axis"], ["rows"]),
        helper.make_node("Gather", ["x", "rows"], ["chosen"]),
        helper.make_node("MatMul", ["chosen", "kernel"], ["product"]),
        helper.make_node("Relu", ["product"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "rows",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (ROWS, WIDE)),
         helper.make_tensor_value_info("mark", TensorProto.FLOAT, (ROWS,))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "rows.onnx")
    file = tmp_path / "rows.yaml"
    file.write_text(
        "version: 1\nname: rows\nmodel: {path: rows.onnx, found: {marked: 20}}\n"
        "tuning: null\nbenchmark: null\n"
    )
    return file


def test_a_package_takes_every_number_of_rows(pipeline, tmp_path):
    made = flow.run(pipeline, store=tmp_path / "store", output=tmp_path / "dist")
    tasks = {task.name: task for task in read_tasks(made["tasks"].path)}
    (likely,) = [name for name in tasks if name.startswith("fused_matmul") and "@" in name]
    assert likely.endswith("@20")
    assert tasks[likely].dropped is None
    assert tasks[likely].outputs[0].shape == (20, MADE)
    (open_,) = [name for name in tasks if name.startswith("fused_matmul") and "@" not in name]
    assert f"at specialized sizes it is task {tasks[likely].index}" in str(tasks[open_].dropped)
    built = {task.name: task for task in BuiltLibrary.read(made["build"].path).tasks}
    assert (built[open_].engine, built[open_].checked) == ("static", True)

    model, random = open_package(tmp_path / "dist" / "rows.tar"), np.random.default_rng(1)
    for count in (0, 1, 5, 20, 31, ROWS):
        mark = np.zeros(ROWS, "f")
        mark[random.permutation(ROWS)[:count]] = 1
        feeds = {"x": random.standard_normal((ROWS, WIDE), "f"), "mark": mark}
        (expected,) = run(tmp_path / "rows.onnx", feeds)
        assert model(feeds)["y"].shape == (count, MADE)
        np.testing.assert_allclose(model(feeds)["y"], expected, 1e-4, 1e-4)


def test_a_node_that_finds_nothing_is_told(pipeline, tmp_path):
    with pytest.raises(
        ConfigError, match="no size of the model is called so; it computes 'marked'"
    ):
        flow.run(
            pipeline,
            overrides=["model.found.other=3"],
            store=tmp_path / "store",
            until="lower",
        )
