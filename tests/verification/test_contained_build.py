"""A build that crashes on a case: the case is told, and the others are compared all the same."""

import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto, helper

from autopipe.artifacts.signature import Port
from autopipe.compiler.library import runtime
from autopipe.config.verify import Verify
from autopipe.errors import GateError, StageError
from autopipe.verification.check import verify_build
from autopipe.verification.contained_build import BuildCrash, ContainedBuild
from tests.artifacts.examples import library
from tests.verification.imported_onnx import save_imported

SHAPE = (64,)
PORTS = {"inputs": (Port(name="x", shape=SHAPE, dtype="float32"),),
         "outputs": (Port(name="y", shape=SHAPE, dtype="float32"),)}  # fmt: skip


@pytest.fixture
def contained(tmp_path, monkeypatch):
    """Give what makes of a function a build of a model of one operator, in a process of its own."""
    folder = tmp_path / "library"
    folder.mkdir()
    library(**PORTS).write(folder)

    def make(compute, kind):
        monkeypatch.setattr(runtime, "load_artifact", lambda _: lambda a: {"y": compute(a["x"])})
        x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, SHAPE) for n in ("x", "y"))
        graph = helper.make_graph([helper.make_node(kind, ["x"], ["y"])], "g", [x], [y])
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        save_imported(made, tmp_path)
        return ContainedBuild(folder, tmp_path, {})

    return SimpleNamespace(make=make, folder=tmp_path)


def crashing(compute, name=signal.SIGSEGV):
    """Return a function that ends its process where numbers are huge."""

    def run(array):
        if np.abs(array).max() > 1e30:
            os.kill(os.getpid(), name)
        return compute(array)

    return run


def test_a_crash_on_huge_numbers_is_told_with_its_case(contained):
    with contained.make(crashing(np.exp), "Exp") as build:
        found = verify_build(build, contained.folder, Verify(reference="onnx"), contained.folder)
    told = [line for line in found.warnings if "crash" in line]
    assert told[0].startswith("case 'huge': the build crashed on it (killed by SIGSEGV)")
    assert {case.name for case in found.special if case.crashed} >= {"huge"}


def test_a_crash_fails_a_build_that_promises_more(contained):
    with (
        contained.make(crashing(np.abs, signal.SIGFPE), "Abs") as build,
        pytest.raises(GateError, match=r"on case 'huge': the build crashed .*SIGFPE"),
    ):
        verify_build(build, contained.folder, Verify(reference="onnx"), contained.folder)


def test_after_a_crash_the_next_call_finds_a_sound_process(contained):
    ones = np.ones(SHAPE, np.float32)
    with contained.make(crashing(np.abs), "Abs") as build:
        with pytest.raises(BuildCrash, match="SIGSEGV"):
            build({"x": ones * np.float32(1e38)})
        np.testing.assert_array_equal(build({"x": -ones})["y"], ones)


def test_what_the_model_refuses_is_raised_as_it_is(contained):
    def refuse(_):
        raise StageError("the compiled model failed: no room")

    with contained.make(refuse, "Abs") as build, pytest.raises(StageError, match=r"^the compiled"):
        build({"x": np.ones(SHAPE, np.float32)})
