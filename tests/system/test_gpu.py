"""Pipelines for NVIDIA GPUs: what is built without one, and complete runs where there is one.

The complete runs are marked `gpu`: `pytest -m gpu`, on a machine with a driver for CUDA 13.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from autopipe.cli.app import main
from autopipe.environment.cuda import Gpu, look
from autopipe.packaging.examine import examine_package
from tests.compiler.cuda_graphs import needs_nvcc
from tests.compiler.frontends import models
from tests.support import fake_gpu

FILE = """
version: 1
name: small-cuda
model: {{path: model.onnx}}
target: {{kind: cuda{arch}}}
layout: {{conv2d: [NHWC, HWIO]}}
tasks: {{heuristics: {{min_flops: 0}}}}
"""
UNMEASURED = "tuning: null\nverify: null\nbenchmark: null\n"
TUNED = """
tuning: {budget: {trials: 16}}
schedules: {rules: [{match: {op: "*"}, engines: [ansor]}]}
benchmark: {against: [onnxruntime], rounds: 2, repeat: 3}
"""
WORKED = ["import", "optimize", "lower", "tasks", "tune", "build", "verify", "benchmark", "package"]


def network():
    """Convolution, depthwise convolution, pool, dense, softmax; batch of two."""
    nodes = [
        models.node("Conv", ["x", "kernel", "bias"], "c", pads=[1, 1, 1, 1]),
        models.node("Relu", ["c"], "r"),
        models.node("Conv", ["r", "depth"], "d", pads=[1, 1, 1, 1], group=16),
        models.node("Add", ["d", "r"], "s"),
        models.node("MaxPool", ["s"], "p", kernel_shape=[2, 2], strides=[2, 2]),
        models.node("GlobalAveragePool", ["p"], "g"),
        models.node("Flatten", ["g"], "f"),
        models.node("MatMul", ["f", "dense"], "m"),
        models.node("Softmax", ["m"], "y", axis=-1),
    ]
    stored = [
        models.tensor("kernel", 16, 3, 3, 3),
        models.tensor("bias", 16),
        models.tensor("depth", 16, 1, 3, 3),
        models.tensor("dense", 16, 10),
    ]
    image = models.value("x", [2, 3, 32, 32])
    return models.model(nodes, [image], [models.value("y", [2, 10])], stored)


@pytest.fixture
def autopipe(tmp_path, monkeypatch, capsys):
    """Run a command in a folder with the model and a pipeline file.

    It is run in this process, unless it takes variables that are read as a process starts.
    """
    onnx.save(network(), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOPIPE_STORE", str(tmp_path / "store"))

    def call(text, *arguments, **extra):
        (tmp_path / "small.yaml").write_text(text)
        if extra:
            return subprocess.run(
                [sys.executable, "-m", "autopipe", *arguments], env={**os.environ, **extra},
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        monkeypatch.setattr(sys, "argv", ["autopipe", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        told, code = capsys.readouterr(), end.value.code
        assert isinstance(code, int)
        return subprocess.CompletedProcess(arguments, code, told.out, told.err)

    return call


def packed(folder: Path):
    return examine_package(folder / "dist" / "small-cuda.tar").needs


def test_a_pipeline_for_a_gpu_is_valid_and_planned_without_one(autopipe):
    text = FILE.format(arch=", arch: nvidia/nvidia-h100") + TUNED
    assert autopipe(text, "validate", "small.yaml").returncode == 0
    planned = autopipe(text, "plan", "small.yaml")
    assert planned.returncode == 0, planned.stderr
    assert [line.split()[0] for line in planned.stdout.splitlines()] == WORKED


@needs_nvcc
def test_a_package_for_a_gpu_is_built_without_one_and_launches_its_kernels(autopipe, tmp_path):
    text = FILE.format(arch=", arch: sm_90") + UNMEASURED
    done = autopipe(text, "run", "small.yaml")
    assert done.returncode == 0, done.stderr
    needs = packed(tmp_path)
    assert needs.processor.gpu == "sm_90"
    assert needs.signature.device == "cuda"
    assert {task.engine for task in needs.tasks} == {"default"}

    np.save(tmp_path / "x.npy", np.ones((2, 3, 32, 32), "float32"))
    fake = fake_gpu.make(tmp_path)
    run = autopipe(text, "infer", "dist/small-cuda.tar", "--input", "x.npy", **fake)
    assert run.stdout.startswith("y: float32 [2, 10], min 0, max 0"), run.stderr
    log = fake_gpu.log(tmp_path)
    assert [rest for _, what, rest in log if what == "load"] == ["machine code"]
    launched = {rest.rsplit("_kernel", 1)[0] for _, what, rest in log if what == "launch"}
    assert launched <= {task.name for task in needs.tasks}
    assert len(launched) >= 5


@needs_nvcc
@pytest.mark.slow
def test_what_a_gpu_computes_wrongly_never_wins(autopipe, tmp_path):
    """One whose kernels do nothing: all is measured, nothing is right, nothing is built."""
    fake = fake_gpu.make(tmp_path)
    done = autopipe(FILE.format(arch="") + TUNED, "run", "small.yaml", **fake)
    assert done.returncode == 4, done.stderr
    said = done.stdout + done.stderr
    for engine in ("default", "ansor"):
        assert f"the schedule of {engine} on direct is wrong and was put aside" in said
    log = fake_gpu.log(tmp_path)
    assert len({pid for pid, what, _ in log if what == "launch"}) >= 16


@pytest.mark.fault("A12")
@pytest.mark.skipif(isinstance(look(), Gpu), reason="there is a GPU here")
@pytest.mark.parametrize(
    ("arch", "until", "said"),
    [
        ("", "build", "error: target.arch: .*; name what to compile for, such as sm_90"),
        (", arch: sm_90", "tune", "error: built for sm_90, but .* NVIDIA driver"),
    ],
)
def test_what_needs_a_gpu_says_so(autopipe, arch, until, said):
    done = autopipe(FILE.format(arch=arch) + TUNED, "run", "small.yaml", "--until", until)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert re.match(said, done.stderr), done.stderr


gpu = pytest.mark.skipif(not isinstance(look(), Gpu), reason=str(look()))


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["conv2d: [NHWC, HWIO]", "conv2d: [NCHW, OIHW]"])
def test_a_build_that_was_not_tuned_is_right(autopipe, layout):
    text = FILE.format(arch="").replace("conv2d: [NHWC, HWIO]", layout)
    text += "tuning: null\nbenchmark: null\n"
    done = autopipe(text, "run", "small.yaml")
    assert done.returncode == 0, done.stderr


@gpu
@pytest.mark.gpu
def test_a_model_is_tuned_verified_measured_and_shipped(autopipe, tmp_path):
    text = FILE.format(arch="") + TUNED
    done = autopipe(text, "run", "small.yaml")
    assert done.returncode == 0, done.stderr
    assert "16 trials (" in done.stdout
    needs = packed(tmp_path)
    found = look()
    assert isinstance(found, Gpu)
    assert needs.processor.gpu == found.arch
    again = autopipe(text, "run", "small.yaml")
    assert again.stdout.count("cached") >= len(WORKED) - 1, again.stdout

    image = np.random.default_rng(0).standard_normal((2, 3, 32, 32)).astype("float32")
    np.save(tmp_path / "x.npy", image)
    shipped = autopipe(
        text, "infer", "dist/small-cuda.tar", "--input", "x.npy", "--output", "outputs"
    )
    assert shipped.returncode == 0, shipped.stderr
    import onnxruntime

    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (expected,) = session.run(None, {"x": image})
    np.testing.assert_allclose(np.load(tmp_path / "outputs/y.npy"), expected, rtol=1e-3, atol=1e-4)
