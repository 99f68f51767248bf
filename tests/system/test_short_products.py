"""A model with products in bfloat16, built for a processor that has them, and run as one would."""

import json
import shutil
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autopipe.api import flow
from autopipe.compiler.library import build as library_build
from autopipe.config.load import load
from autopipe.config.verify import Verify
from autopipe.environment.facet import Facet
from autopipe.errors import GateError, TargetError
from autopipe.pipeline.stage import Context
from autopipe.stages.build import BuildStage
from autopipe.verification.check import verify_build
from autopipe.verification.contained_build import ContainedBuild
from tests.schedules import emulated

SHAPES = {
    "stem": (16, 3, 3, 3), "point": (32, 16, 1, 1), "three": (32, 32, 3, 3), "deep": (32, 1, 3, 3),
    "dense": (32, 12), "odd": (12, 10),
}  # fmt: skip
PIPELINE = """\
version: 1
name: net
model: {path: net.onnx}
layout: {conv2d: [NHWC, HWIO]}
numerics: {compute: bfloat16}
target: {mcpu: znver4, num_cores: 2}
tuning: null
benchmark: null
verify: null
"""
WIDE = [
    "conv2d with deep: it has 32 groups",
    "matmul with odd: 10 columns are no multiple of 4",
]


def write(folder):
    """A stem, a 1x1, a 3x3 with a sum around it, a depthwise one, and two dense layers."""
    random = np.random.default_rng(0)
    scales = {name: (2 / np.prod(shape[:1] if len(shape) == 2 else shape[1:])) ** 0.5
              for name, shape in SHAPES.items()}  # fmt: skip
    arrays = {name: random.standard_normal(shape) * scales[name] for name, shape in SHAPES.items()}
    weights = [
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()
    ]
    steps: list[tuple[str, tuple[object, ...], dict[str, Any]]] = [
        ("Conv", ("x", "stem"), {"pads": [1] * 4}), ("Relu", (0,), {}), ("Conv", (1, "point"), {}),
        ("Relu", (2,), {}), ("Conv", (3, "three"), {"pads": [1] * 4}), ("Add", (4, 3), {}),
        ("Relu", (5,), {}), ("Conv", (6, "deep"), {"pads": [1] * 4, "group": 32}),
        ("GlobalAveragePool", (7,), {}), ("Flatten", (8,), {}), ("MatMul", (9, "dense"), {}),
        ("Tanh", (10,), {}), ("MatMul", (11, "odd"), {}),
    ]  # fmt: skip
    nodes = [helper.make_node(op, [str(name) for name in given], [str(place)], **attributes)
             for place, (op, given, attributes) in enumerate(steps)]  # fmt: skip
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("x", (1, 3, 12, 12)), (str(len(steps) - 1), (1, 10))))  # fmt: skip
    graph = helper.make_graph(nodes, "net", [x], [y], weights)
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), folder / "net.onnx")
    (folder / "net.yaml").write_text(PIPELINE)
    return folder / "net.yaml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("short")


@pytest.fixture(scope="module")
def run(folder):
    return flow.run(write(folder), store=folder / "store", output=folder / "dist")


@pytest.fixture(scope="module")
def build(folder, run):
    """The artifact of *build* once more, of code that this processor can run."""
    known = json.loads((run["build"].path / "library.json").read_bytes())
    out = folder / "emulated"
    for name in ("out", "work"):
        (folder / "emulated" / name).mkdir(parents=True)
    facts = {facet: {} for facet in BuildStage.reads} | {Facet.TARGET: known["target"]}
    inputs = {name: run[name].path for name in ("import", "optimize", "lower", "tasks")}
    ctx = Context(inputs, facts, out / "out", out / "work", folder / "none", lambda _: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library_build, "split_kernels", lambda graph: graph)
        patch.setattr(library_build, "export_library", emulated.export)
        BuildStage.of(load(folder / "net.yaml"), folder).run(ctx)
    written = out / "out/library.json"
    told = json.loads(written.read_bytes())
    told["target"]["mcpu"] = "x86-64"
    written.write_text(json.dumps(told))
    return out / "out"


def verified(build, run, tmp_path, **options):
    target = json.loads((build / "library.json").read_bytes())["target"]
    with ContainedBuild(build, tmp_path, target) as model:
        return verify_build(model, run["import"].path, Verify(**options), tmp_path)


def test_what_stays_in_float32_is_told(run):
    found = json.loads((run["optimize"].path / "optimize.json").read_bytes())
    assert (found["short"], found["wide"]) == (4, WIDE)


def test_a_package_is_the_same_again(folder, run, tmp_path):
    flow.run(folder / "net.yaml", store=tmp_path / "store", output=tmp_path / "dist")
    first, second = (path / "dist/net.tar" for path in (folder, tmp_path))
    assert first.read_bytes() == second.read_bytes()


def test_a_build_does_what_the_model_with_rounded_operands_does(build, run, tmp_path):
    found = verified(build, run, tmp_path)
    assert found.reference == "plain"
    assert 5e-4 < found.rounded_by < 0.02
    random = [case for case in found.cases if case.name.startswith("random")]
    assert random
    assert all(output.max_rel < 0.01 for case in random for output in case.outputs)


def test_how_far_it_is_from_the_model_is_bounded(build, run, tmp_path):
    with pytest.raises(GateError, match=r"products in bfloat16 move output .* allows 0\.01%"):
        verified(build, run, tmp_path, accuracy=0.0001)


def test_a_build_with_another_weight_is_wrong(build, run, tmp_path):
    from autopipe.compiler import module_io

    wrong = shutil.copytree(build, tmp_path / "wrong")
    weights = dict(module_io.load_weights(wrong / "weights.safetensors"))
    name = next(name for name, array in weights.items() if array.dtype.name == "bfloat16")
    weights[name] = (weights[name].astype("f") * 1.1).astype(weights[name].dtype)
    module_io.save_weights(weights, wrong / "weights.safetensors")
    with pytest.raises(GateError, match="is wrong"):
        verified(wrong, run, tmp_path, cases=1, atol=1e-3)


def test_another_processor_is_refused_before_anything_is_built(folder, run):
    with pytest.raises(TargetError, match=r"numerics\.compute: .* lacks: x86_64, znver3; such are"):
        flow.run(folder / "net.yaml", store=folder / "store", overrides=["target.mcpu=znver3"])
