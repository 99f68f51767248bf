"""Files that nobody wrote: 200 damaged models and 200 damaged pipeline files end in a line."""

import io
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from autopipe.benchmarking import baseline
from autopipe.comparison import reading
from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.compiler.frontends.onnx.reading import gate, source
from autopipe.errors import AutopipeError, ConfigError
from autopipe.lock import records as beside
from autopipe.lock.file import read_text
from autopipe.packaging.infer_child import _load_array
from autopipe.processes.sandbox import run_in_sandbox
from tests.compiler.frontends.models import dense, external, model, node, tensor, value
from tests.compiler.frontends.test_import_bounds import doubling, looping
from tests.compiler.frontends.test_load import GIVEN, network
from tests.faults.mutations import deadline, mutants

GOLDEN = Path(__file__).parents[1] / "golden" / "v0.1"
PIPELINES = sorted((Path(__file__).parents[2] / "pipelines").rglob("*.yaml"))
SECONDS = 60


def branching() -> bytes:
    """A model with graphs inside a node, a function, and external data."""
    from onnx import TensorProto, helper

    branches = {
        name: helper.make_graph([node(kind, ["x"], name)], name, [], [value(name, [2, 3])])
        for name, kind in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }
    twice = helper.make_function(
        "own", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], "b")], [helper.make_opsetid("", 17)]
    )
    flag = helper.make_tensor("flag", TensorProto.BOOL, [], [True])
    made = model(
        [
            node("If", ["flag"], "chosen", **branches),
            helper.make_node("Twice", ["chosen"], ["doubled"], domain="own"),
            node("MatMul", ["doubled", "weight"]),
        ],
        [value("x", [2, 3])], [value("y", [2, 4])], [tensor("weight", 3, 4), flag],
        functions=[twice], opsets=[helper.make_opsetid("", 17), helper.make_opsetid("own", 1)],
    )  # fmt: skip
    external(made)
    return bytes(made.SerializeToString())


def seeds() -> list[bytes]:
    made = [dense(), network(), looping(3, "x", stacked=True, inner=2), doubling("x", 4)]
    return [each.SerializeToString() for each in made] + [branching()]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data.bin").write_bytes(bytes(48))
    return tmp_path


def outcome(work: Callable[[], object]) -> tuple[int, str]:
    """Return how a command would end, and what it would say."""
    try:
        with deadline(SECONDS):
            work()
    except AutopipeError as error:
        return error.exit_code, str(error)
    return 0, ""


@pytest.mark.fault("B13", "G15")
@pytest.mark.parametrize("count", [200, pytest.param(5000, marks=pytest.mark.slow)])
def test_damaged_models_pass_the_gate_or_are_refused(folder, count):
    path = folder / "model.onnx"
    ends: Counter[int] = Counter()
    for data in mutants(seeds(), count, seed=count):
        path.write_bytes(data)
        inputs = GIVEN if b"data.0/x" in data else {}
        code, told = outcome(lambda: gate.admit_model(source.read_model_file(path), path, inputs))  # noqa: B023
        assert "\n" not in told
        assert "crashed" not in told
        ends[code] += 1
    assert set(ends) <= {0, 2, 3}
    assert min(ends[0], ends[3]) > count / 10, ends


@pytest.mark.fault("B13")
@pytest.mark.slow
def test_damaged_models_are_imported_or_refused(folder):
    """All of the import, in a child each, for TVM and the clean-up are native code too."""
    path = folder / "model.onnx"
    ends: Counter[int] = Counter()
    for data in mutants(seeds(), 1000, seed=0):
        path.write_bytes(data)
        inputs = GIVEN if b"data.0/x" in data else {}

        def work(inputs=inputs):
            try:
                load_model(path, inputs, None, None)
            except AutopipeError:
                raise
            except Exception as error:
                raise ConfigError("a bug") from error

        code, told = outcome(lambda: run_in_sandbox(work, memory=4 << 30, seconds=SECONDS))
        assert told != "a bug"
        assert "crashed" not in told
        ends[code] += 1
    assert set(ends) <= {0, 2, 3}
    assert min(ends[0], ends[3]) > 100, ends


@pytest.mark.fault("A8")
@pytest.mark.parametrize("count", [200, pytest.param(5000, marks=pytest.mark.slow)])
def test_damaged_pipeline_files_are_valid_or_refused(autopipe, tmp_path, count):
    texts = [path.read_bytes() for path in PIPELINES]
    (tmp_path / "models").symlink_to(PIPELINES[0].parent / "models")
    ends: Counter[int] = Counter()
    for data in mutants(texts, count, seed=count):
        path = tmp_path / "demo.yaml"
        path.write_bytes(data)
        with deadline(SECONDS):
            done = autopipe("validate", path)
        ends[done.code] += 1
        assert (done.code == 0) == (done.out == f"{path}: ok\n")
        assert all(map(str.isprintable, done.err.splitlines()))
    assert set(ends) <= {0, 2, 3}
    assert min(ends[0], ends[2]) > count / 20, ends


def array() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros((2, 3), "f"), allow_pickle=False)
    return file.getvalue()


@pytest.mark.fault("C20", "E11")
@pytest.mark.parametrize(
    ("name", "read", "codes"),
    [
        ("tiny.lock", reading.read_build, {2, 6}),
        ("tiny.tar", reading.read_build, {2, 3}),
        ("tiny.report.json", reading.read_build, {2}),
        ("tiny.baseline.json", lambda path: baseline.read_baseline(path, "tiny"), {2}),
        ("tiny.records.jsonl", lambda path: beside.read_records(read_text(path), path), {6}),
        ("array.npy", _load_array, {2}),
    ],
)
def test_damaged_files_of_ours_are_read_or_refused(tmp_path, name, read, codes):
    seed = array() if name == "array.npy" else (GOLDEN / name).read_bytes()
    path = tmp_path / name
    ends: Counter[int] = Counter()
    for data in mutants([seed], 200, seed=200):
        path.write_bytes(data)
        code, told = outcome(lambda: read(path))
        assert path.name in told or code == 0
        ends[code] += 1
    assert codes & set(ends)
    assert set(ends) <= codes | {0}, ends
