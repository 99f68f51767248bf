"""Faults planted in a build, found by `autopipe bisect`, and seen again by its script."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from autopipe.api import flow
from autopipe.api.bisect import bisect_build, find_bisect_target
from autopipe.bisection.bisection import Bisection, Cause
from autopipe.bisection.call_folder import ACTUAL, EXPECTED
from autopipe.bisection.table import format_verdict
from autopipe.cli.app import build_app
from autopipe.errors import ConfigError, GateError, StoreError
from autopipe.profiling.profile import Peaks
from tests.bisection.planted import above, far, kernel_of, plant
from tests.compiler.frontends.models import dense, model, node, save, tensor, value

PIPELINE = """
version: 1
name: small
model: {path: small.onnx}
layout: {conv2d: [NHWC, HWIO]}
tuning: null
benchmark: null
verify: {cases: 1}
"""

NODES = [
    node("Conv", ["x", "w"], "a", pads=[1, 1, 1, 1]), node("Relu", ["a"], "b"),
    node("Conv", ["b", "v"], "c", pads=[1, 1, 1, 1]), node("Relu", ["c"], "d"),
    node("Conv", ["d", "u"], "e"), node("Flatten", ["e"], "f"), node("MatMul", ["f", "m"], "y"),
]  # fmt: skip
WEIGHTS = [tensor("w", 8, 4, 3, 3), tensor("v", 8, 8, 3, 3), tensor("u", 4, 8, 1, 1)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small model with convolutions, built."""
    folder = tmp_path_factory.mktemp("bisected")
    made = model(
        NODES, [value("x", [1, 4, 8, 8])], [value("y", None)], [*WEIGHTS, tensor("m", 256, 10)]
    )
    save(made, folder, "small.onnx")
    (folder / "small.yaml").write_text(PIPELINE)
    flow.run(folder / "small.yaml", store=folder / "store", output=folder / "dist")
    return folder


@pytest.fixture
def target(folder):
    """The build of that model."""
    return find_bisect_target(folder / "small.yaml", store=folder / "store")


def run(*words):
    """Run the command in this process; the build runs in a child."""
    return CliRunner().invoke(build_app(), ["bisect", *map(str, words)])


def first(made):
    """Return the first wrong call, and how far it is off."""
    found = made.calls[made.first]
    by_loops = made.cause is Cause.LOOPS
    return found, (found.plain if by_loops else found.reference)


def stored(file):
    """Return the arrays of a file."""
    with np.load(file) as arrays:
        return dict(arrays)


def repeat(folder):
    """Run the script of a folder as a user does."""
    return subprocess.run(
        [sys.executable, folder / "reproduce.py"], capture_output=True, text=True, check=False
    )


def test_a_right_build_leaves_nowhere(folder, tmp_path):
    """Each call is compared, with plain loops and with the value of its nodes."""
    file = folder / "small.yaml"
    done = run(file, "--store", folder / "store", "--to", tmp_path / "to", "--json")
    assert done.exit_code == 0, done.output
    made = Bisection.model_validate_json(done.stdout)
    assert made.agrees
    assert made.case == "random-0"
    values = {call.tensor for call in made.calls if call.reference and call.reference.agrees}
    assert {"b", "d", "y"} <= values
    assert all(call.plain is not None and call.plain.agrees for call in made.calls)
    assert not (tmp_path / "to").exists()


def test_a_wrong_schedule_is_found_by_its_node_and_seen_again(target, tmp_path, monkeypatch):
    """The command ends in the exit code of a check that says no."""
    wrong = plant(target, tmp_path / "planted", kernel_of(target, "Relu of d"), above)
    monkeypatch.setattr("autopipe.api.bisect.find_bisect_target", lambda *_, **__: wrong)
    done = run("small.yaml", "--to", tmp_path / "to", "--json")
    assert isinstance(done.exception, GateError)
    made = Bisection.model_validate_json(done.stdout)
    assert made.wrong
    assert made.cause is Cause.LOOPS
    found, off = first(made)
    assert found.nodes == ("Conv of c", "Relu of d")
    assert off.max_abs == pytest.approx(0.25, abs=1e-3)
    assert "(Conv of c, Relu of d)" in format_verdict(made)
    others = [call for at, call in enumerate(made.calls) if at != made.first]
    assert all(call.plain and call.plain.agrees for call in others), "each is judged alone"
    again = repeat(tmp_path / "to")
    assert again.returncode == 1, again.stderr
    assert f"largest error {off.max_abs:.6g}" in again.stdout
    expected, actual = (stored(tmp_path / "to" / file)["0"] for file in (EXPECTED, ACTUAL))
    assert np.abs(expected - actual).max() == np.float32(off.max_abs)
    assert "T.max" in (tmp_path / "to" / "kernel.txt").read_text()


def test_a_wrong_rewrite_is_found_where_the_model_leaves_the_reference(target, tmp_path):
    kernel = kernel_of(target, "Relu of d")
    wrong = plant(target, tmp_path / "planted", kernel, above, lowered=True)
    made = bisect_build(wrong, to=tmp_path / "to")
    assert made.cause is Cause.REFERENCE
    found, off = first(made)
    assert (found.nodes, found.tensor) == (("Conv of c", "Relu of d"), "d")
    assert found.plain
    assert found.plain.agrees
    again = repeat(tmp_path / "to")
    assert again.returncode == 1, again.stderr
    assert f"largest error {off.max_abs:.6g}" in again.stdout


def test_a_kernel_that_crashes_is_found_with_its_inputs(target, tmp_path):
    wrong = plant(target, tmp_path / "planted", kernel_of(target, "Relu of d"), far)
    made = bisect_build(wrong, case="zeros", to=tmp_path / "to")
    assert (made.case, made.cause) == ("zeros", Cause.CRASH)
    assert first(made)[0].nodes == ("Conv of c", "Relu of d")
    assert "does not return" in format_verdict(made)
    assert sorted(stored(tmp_path / "to" / "inputs.npz")) == ["0", "1"]
    assert repeat(tmp_path / "to").returncode < 0


def test_a_folder_that_can_not_be_made_is_refused_before_anything_runs(target):
    with pytest.raises(StoreError, match="/dev/null: File exists"):
        bisect_build(target, to=Path("/dev/null"))


def test_inputs_of_a_name_that_no_case_has_are_refused(target):
    with pytest.raises(ConfigError, match="case 'nan' is not compared: the model promises"):
        bisect_build(target, case="nan")
    with pytest.raises(ConfigError, match="there is no case 'none'; there are random-0, zeros"):
        bisect_build(target, case="none")


def test_the_slowest_kernel_for_its_work_is_saved_and_timed(folder, tmp_path, monkeypatch):
    """The bound, which is a matter of times, is one here that all kernels miss, or none."""
    file = folder / "small.yaml"
    monkeypatch.setattr(Peaks, "compute_bound", lambda *_: 1.0)
    done = run(file, "--store", folder / "store", "--slow", "--to", tmp_path / "none")
    assert "none loses time against its bound" in done.stdout
    assert "wrote" not in done.stdout
    assert not (tmp_path / "none").exists()
    monkeypatch.setattr(Peaks, "compute_bound", lambda *_: 0.0)
    done = run(file, "--store", folder / "store", "--slow", "--to", tmp_path / "to")
    assert done.exit_code == 0, done.output
    assert "loses most" in done.stdout
    again = repeat(tmp_path / "to")
    assert again.returncode == 0, again.stderr
    assert "us a call on" in again.stdout
    done = run(file, "--store", folder / "store", "--slow", "--against", "onnxruntime")
    assert "onnxruntime us" in done.stdout


def test_a_dynamic_model_is_bisected_at_its_sizes(tmp_path):
    save(dense(rows="rows"), tmp_path, "small.onnx")
    (tmp_path / "small.yaml").write_text(
        PIPELINE.replace(
            "path: small.onnx",
            "path: small.onnx, inputs: {x: {shape: [n, 3]}}, "
            "dimensions: {n: {max: 16, likely: [4]}}",
        )
    )
    flow.run(tmp_path / "small.yaml", store=tmp_path / "store", output=tmp_path / "dist")
    target = find_bisect_target(tmp_path / "small.yaml", store=tmp_path / "store")
    made = bisect_build(target)
    assert made.agrees
    assert (made.sizes, made.library) == ({"n": 4}, "lib.0.so")


def test_a_file_without_a_build_says_so(tmp_path):
    save(dense(), tmp_path, "small.onnx")
    (tmp_path / "small.yaml").write_text(PIPELINE)
    done = run(tmp_path / "small.yaml", "--store", tmp_path / "store")
    assert "no build in the store; run `autopipe run" in str(done.exception)
