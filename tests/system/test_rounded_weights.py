"""A whole run with weights in bfloat16: half the package, and verified."""

import json
import shutil

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from autopipe.api import flow
from autopipe.errors import GateError
from autopipe.export.folder import export_package
from autopipe.packaging.contents import opened
from autopipe.packaging.open import open_package
from autopipe.runtime.weights import read_header
from autopipe.verification.rounding import to_bfloat16
from tests.export.test_export import run as run_program
from tests.stages import two_layers

ALONE = "tuning: null\nbenchmark: null\nnumerics: {weights: bfloat16}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rounded")


@pytest.fixture(scope="module")
def run(folder):
    file = two_layers.write(folder)
    file.write_text(two_layers.PIPELINE + ALONE)
    return flow.run(file, store=folder / "store", output=folder / "dist")


def test_weights_are_stored_in_half_the_bytes_and_biases_as_they_were(folder, run, tmp_path):
    with opened(folder / "dist/two-layers.tar", None) as contents:
        contents.extract("weights.safetensors", tmp_path / "weights")
    stored = read_header(memoryview((tmp_path / "weights").read_bytes()))
    kinds = sorted(weight.dtype for weight in stored.values())
    assert kinds == ["bfloat16", "bfloat16", "float32", "float32"]


def test_verify_says_how_far_the_rounding_moves_the_outputs(run):
    found = json.loads((run["verify"].path / "verify.json").read_bytes())
    assert 1e-4 < found["rounded_by"] < 0.02


def compute(folder, x):
    """Return what the model computes with rounded weights, and with its own."""
    stored = onnx.load(folder / "two-layers.onnx").graph.initializer
    first, second, shift, bias = (numpy_helper.to_array(tensor) for tensor in stored)
    hidden = np.maximum(x @ to_bfloat16(first) + shift, 0)
    exact = np.maximum(x @ first + shift, 0) @ second + bias
    return hidden @ to_bfloat16(second) + bias, exact


def test_a_package_computes_with_them(folder, run):
    model = open_package(folder / "dist/two-layers.tar")
    x = np.random.default_rng(1).standard_normal((8, two_layers.SIZES[0])).astype("f")
    expected, exact = compute(folder, x)
    found = model({"x": x})["scores"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
    assert np.abs(found - exact).max() > 100 * np.abs(found - expected).max()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_reference_with_rounded_weights_answers_the_cases_of_an_export(folder, run, tmp_path):
    package, model = folder / "dist/two-layers.tar", str(folder / "two-layers.onnx")
    made = export_package(package, tmp_path / "made", model=model)
    assert (made / "cases/ORIGIN").read_text().startswith("onnxruntime 1.")
    tested = run_program(made, "--self-test")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    x, found = (np.load(made / f"cases/0.{kind}.0.npy") for kind in ("input", "output"))
    expected, exact = compute(folder, x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
    assert np.abs(found - exact).max() > 100 * np.abs(found - expected).max()


def test_a_bound_that_the_rounding_exceeds_refuses_the_build(folder, run):
    file = folder / "two-layers.yaml"
    with pytest.raises(GateError, match=r"verify\.accuracy allows 0\.01%"):
        flow.run(file, store=folder / "store", overrides=["verify.accuracy=0.0001"])
