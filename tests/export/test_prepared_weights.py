"""An exported folder transforms weights of Winograd kernels when it is loaded."""

import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autopipe.api import flow
from autopipe.artifacts.library import BuiltLibrary
from autopipe.export.folder import export_package
from autopipe.lock.mode import Mode
from autopipe.packaging.open import open_package
from autopipe.runtime import folder as loader
from tests.export.test_export import run
from tests.support.shared import once

CHANNELS, IMAGE = 64, 28
PIPELINE = """
version: 1
name: convolution
model: {path: convolution.onnx}
layout: {conv2d: [NHWC, HWIO]}
target: {num_cores: 1}
tuning: null
benchmark: null
"""


def save_convolution(path):
    """Save a 3x3 convolution whose weights take 147 KB, and 16/9 of that at least in Winograd."""
    weight = np.random.default_rng(0).standard_normal((CHANNELS, CHANNELS, 3, 3), "float32")
    kinds = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, CHANNELS, IMAGE, IMAGE])
        for name in "xy"
    ]
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    graph = helper.make_graph(
        [node], "convolution", kinds[:1], kinds[1:], [numpy_helper.from_array(weight, "w")]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def build(to):
    """Build and export the convolution into a folder."""
    save_convolution(to / "convolution.onnx")
    (to / "convolution.yaml").write_text(PIPELINE)
    artifacts = flow.run(to / "convolution.yaml", store=to / "store", output=to, mode=Mode.OFF)
    tasks = BuiltLibrary.read(artifacts["build"].path).tasks
    used = {task.implementation for task in tasks}
    assert any(name.startswith("winograd") for name in used), "or no weight grows"
    stored = (artifacts["build"].path / "weights.safetensors").stat().st_size
    assert stored < 1.1 * 4 * 9 * CHANNELS**2, "weights are stored as the model has them"
    export_package(to / "convolution.tar", to / "exported")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return once(tmp_path_factory, "prepared", build)


def test_the_program_computes_what_the_reference_does(built):
    tested = run(built / "exported", "--self-test", "--verify")
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_instances_that_share_the_weights_answer_alike_from_c_and_python(built):
    x = np.random.default_rng(1).standard_normal((1, CHANNELS, IMAGE, IMAGE), "float32")
    right = open_package(built / "convolution.tar")({"x": x})["y"]
    both, answers = threading.Barrier(2), list[np.ndarray]()

    def call_often(model):
        both.wait()
        answers.extend(model({"x": x})["y"] for _ in range(100))

    with loader.open_package(built / "exported", threads=1, instances=2) as model:
        calls = [threading.Thread(target=call_often, args=(model,)) for _ in range(2)]
        for call in calls:
            call.start()
        for call in calls:
            call.join()
    assert len(answers) == 200
    assert all(np.array_equal(answer, right) for answer in answers)
