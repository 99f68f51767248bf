"""One package for every size, from the pipeline file to calls of it."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file, save_file

from autopipe import open_package
from autopipe.api import flow
from autopipe.artifacts.verification import Verification
from autopipe.cli.app import build_app
from autopipe.comparison import reading
from autopipe.comparison.difference import compare_builds
from autopipe.compiler.library.runtime import load_artifact
from autopipe.errors import ConfigError, PackageError, StageError
from autopipe.lock import file as files
from autopipe.lock.mode import Mode
from autopipe.packaging.examine import examine_package
from autopipe.tasks.task import read_tasks
from tests.packaging.packages import changed
from tests.support import shared
from tests.support.table import each_row

RANDOM = np.random.default_rng(0)
WEIGHT = RANDOM.standard_normal((8, 16)).astype("float32")
BIAS = RANDOM.standard_normal(16).astype("float32")

FILE = """
version: 1
name: open
model:
  path: open.onnx
  inputs: {x: {shape: [rows, columns, 8], dtype: float32}}
  dimensions:
    rows: {min: 2, max: 24, multiple: 2, likely: [8]}
    columns: {max: 20, likely: [16, 4]}
tuning: null
benchmark: null
tasks: {allow_empty: true}
target: {mcpu: x86-64-v3, num_cores: 1}
"""


def _built(folder):
    """A product, a bias, and a softmax over one of the open sizes."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"],
             ["s"]), helper.make_node("Relu", ["s"], ["r"]),
             helper.make_node("Softmax", ["r"], ["y"], axis=1)]  # fmt: skip
    sizes = ["rows", "columns"]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [*sizes, last])
        for name, last in (("x", 8), ("y", 16))
    )
    weights = [numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(BIAS, "b")]
    graph = helper.make_graph(nodes, "open", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "open.onnx")
    (folder / "open.yaml").write_text(FILE)
    flow.run(folder / "open.yaml", store=folder / "store", output=folder / "dist")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A build of a model with two open sizes; read only."""
    return shared.once(tmp_path_factory, "open", _built)


def expected(x):
    s = np.maximum(x @ WEIGHT + BIAS, 0)
    e = np.exp(s - s.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def model(built):
    return open_package(built / "dist/open.tar")


def given(rows, columns):
    return RANDOM.standard_normal((rows, columns, 8)).astype("float32")


def test_one_package_takes_every_size(model):
    """The names stand in another order than that of their letters, in which documents have them."""
    sizes = [(2, 1), (24, 20), (8, 16), (8, 4), (2, 20), (24, 1), (10, 17), (16, 7), (8, 15)]
    for rows, columns in sizes:
        x = given(rows, columns)
        for generic in (False, True):
            y = model({"x": x}, generic=generic)["y"]
            np.testing.assert_allclose(y, expected(x), rtol=1e-4, atol=1e-6)
    assert [port.shape for port in model.signature.inputs] == [(-1, -1, 8)]
    assert [port.words for port in model.signature.outputs] == [("rows", "columns", "16")]


def test_many_sizes_in_turn_take_no_more_memory(model):
    for rows in range(2, 25, 2):
        for columns in range(1, 21):
            x = given(rows, columns)
            y = model({"x": x})["y"]
            assert y.shape == (rows, columns, 16)
            np.testing.assert_allclose(y, expected(x), rtol=1e-4, atol=1e-6)


def test_the_package_holds_a_library_for_each_likely_size_and_the_lock_names_them(built):
    found = examine_package(built / "dist/open.tar")
    assert {"lib.so", "lib.0.so", "lib.1.so"} < set(found.files)
    assert "lib.2.so" not in found.files
    lock = files.read_lock(built / "open.lock")
    assert {"lib.so", "lib.0.so", "lib.1.so", "open.tar"} < set(lock.artifacts)
    assert found.differences(lock.artifacts) == []
    assert {task.name.partition("@")[2] for task in lock.tasks} == {"", "16x8", "4x8"}
    assert str(found.needs.verification).endswith(" sizes")


def test_weights_of_other_shapes_are_refused_for_no_kernel_looks(built, tmp_path):
    (stored,) = (built / "store").rglob("lib.0.so")
    shutil.copytree(stored.parent, tmp_path, dirs_exist_ok=True)
    assert load_artifact(tmp_path)({"x": given(8, 16)})
    weights = load_file(tmp_path / "weights.safetensors")
    cut = {name: weight[..., :-1].copy() for name, weight in weights.items()}
    save_file(cut, tmp_path / "weights.safetensors")
    with pytest.raises(StageError, match=r"takes other weights: .*shape"):
        load_artifact(tmp_path)


def test_tasks_of_the_generic_library_name_those_at_the_first_likely_sizes(built):
    (table,) = (built / "store").rglob("tasks.json")
    tasks = read_tasks(table.parent)
    for task in tasks:
        _, fixed, _ = task.name.partition("@")
        same = [other for other in tasks if other.workload == task.likely]
        assert bool(fixed) == (task.likely is None)
        assert fixed or task.share == 0
        assert fixed or task.dropped == f"dynamic: at specialized sizes it is task {same[0].index}"
        assert fixed or same[0].name.endswith("@16x8")
        others = [other.name for other in tasks if other.workload in task.also_likely]
        assert [name.partition("@")[2] for name in others] == ([] if fixed else ["4x8"])
    assert sum(task.share for task in tasks) == pytest.approx(1)
    assert all(task.likely is None for task in tasks if "@" in task.name)


def test_verification_tells_sizes(built):
    (report,) = (built / "store").rglob("verify.json")
    found = Verification.read(report.parent)
    assert found.sizes >= 15
    likely = [{"columns": 16, "rows": 8}, {"columns": 4, "rows": 8}]
    for sizes in likely:
        assert {c.generic for c in found.cases if c.sizes == sizes} == {True, False}
    assert {"columns": 1, "rows": 2} in [case.sizes for case in found.cases]
    assert json.loads((report).read_text())["cases"][0]["sizes"] == likely[0]


def test_a_frozen_run_makes_the_same_bytes(built, tmp_path):
    for name in ("open.yaml", "open.onnx", "open.lock"):
        shutil.copy(built / name, tmp_path)
    flow.run(
        tmp_path / "open.yaml", store=tmp_path / "store", output=tmp_path / "dist", mode=Mode.FROZEN
    )
    assert (tmp_path / "dist/open.tar").read_bytes() == (built / "dist/open.tar").read_bytes()


@pytest.mark.fault("E16")
@each_row(
    "shape, why",
    [
        ((26, 16, 8), "dimension 0 (rows) is 26, which is not from 2 to 24"),
        ((7, 16, 8), "dimension 0 (rows) is 7, which is no multiple of 2"),
        ((8, 21, 8), "dimension 1 (columns) is 21, which is not from 1 to 20"),
        ((8, 16), "input 'x' has 2 dimensions; the model takes float32 [rows, columns, 8]"),
        ((8, 16, 7), "input 'x' is float32 [8, 16, 7]; the model takes float32 [8, 16, 8]"),
    ],
)
def test_a_size_that_the_model_does_not_take_is_refused_in_a_line(model, shape, why):
    with pytest.raises(ConfigError) as caught:
        model({"x": np.zeros(shape, "float32")})
    assert why in str(caught.value)
    assert caught.value.exit_code == 2


def test_the_command_takes_any_size(built, tmp_path, capsys):
    np.savez(tmp_path / "in.npz", x=given(6, 5))
    np.save(tmp_path / "x.npy", given(4, 3))
    np.save(tmp_path / "odd.npy", given(5, 3))
    package = str(built / "dist/open.tar")
    for name, shape in (("in.npz", "[6, 5, 16]"), ("x.npy", "[4, 3, 16]")):
        build_app()(["infer", package, "--input", str(tmp_path / name)], standalone_mode=False)
        assert f"y: float32 {shape}" in capsys.readouterr().out
    build_app()(["verify", package], standalone_mode=False)
    told = capsys.readouterr().out
    assert "takes columns from 1 to 20\ntakes rows from 2 to 24, a multiple of 2\n" in told
    assert "lib.1.so is for columns = 4, rows = 8\n" in told
    with pytest.raises(ConfigError, match=r"dimension 0 \(rows\) is 5, which is no multiple of 2"):
        build_app()(["infer", package, "--input", str(tmp_path / "odd.npy")], standalone_mode=False)


def _without(document):
    document["subject"] = [s for s in document["subject"] if s["name"] != "lib.1.so"]


def _signature(document):
    definition = document["predicate"]["buildDefinition"]
    return definition["internalParameters"]["signature"]


def _outside(document):
    _signature(document)["entries"][0]["sizes"]["rows"] = 26


def _unknown(document):
    _signature(document)["entries"][0]["sizes"]["height"] = 8


def _elsewhere(document):
    _signature(document)["entries"][0]["library"] = "../lib.so"


def _fewer(document):
    del _signature(document)["entries"][1]


def _twice(document):
    _signature(document)["entries"][1]["library"] = "lib.0.so"


def _closed(document):
    _signature(document)["inputs"][0]["dimensions"] = []


@pytest.mark.fault("E16")
@each_row(
    "forge, why",
    [
        (_outside, "rows = 26 is not from 2 to 24"), (_unknown, "lib.0.so has other dimensions"),
        (_elsewhere, "library"), (_fewer, "calls lib.0.so beside lib.so; there is lib.0"),
        (_twice, "a library is named twice"), (_closed, "dimensions"),
        (_without, "lists"),
    ],
)  # fmt: skip
def test_a_forged_signature_is_refused(built, tmp_path_factory, forge, why):
    folder = tmp_path_factory.mktemp("forged")
    package = changed(Path(shutil.copy(built / "dist/open.tar", folder)), manifest=forge)
    for read in (examine_package, open_package):
        with pytest.raises(PackageError) as caught:
            read(package)
        assert why in str(caught.value)


def _exchanged(document):
    """Have each library called at the sizes of the other one."""
    one, other = _signature(document)["entries"]
    one["sizes"], other["sizes"] = other["sizes"], one["sizes"]


def _more(document):
    _signature(document)["dimensions"]["rows"]["multiple"] = 4


def _third(document):
    """Call one more size open than the libraries have."""
    signature = _signature(document)
    signature["inputs"][0].update(dimensions=["rows", "columns", "deep"], shape=[-1, -1, -1])
    signature["dimensions"]["deep"] = {"max": 8, "likely": [8]}
    for entry in signature["entries"]:
        entry["sizes"]["deep"] = 8


def _turned(document):
    _signature(document)["inputs"][0]["dimensions"] = ["columns", "rows", ""]


def _half(document):
    entry = _signature(document)["entries"][0]
    entry["weights"] = entry["weights"][:1]


def _backwards(document):
    _signature(document)["entries"][0]["weights"].reverse()


@pytest.mark.fault("E16")
@each_row(
    "forge, shape",
    [
        (_exchanged, (8, 16)), (_exchanged, (8, 4)), (_more, (8, 16)), (_more, (12, 5)),
        (_third, (8, 16)), (_third, (6, 5)), (_turned, (16, 8)),
    ],
)  # fmt: skip
def test_libraries_that_are_not_what_the_signature_says_compute_nothing(
    built, tmp_path_factory, forge, shape
):
    folder = tmp_path_factory.mktemp("forged")
    package = changed(Path(shutil.copy(built / "dist/open.tar", folder)), manifest=forge)
    with pytest.raises(StageError, match="the compiled model failed") as caught:
        open_package(package)({"x": given(*shape)})
    assert "\n" not in str(caught.value)


@pytest.mark.fault("E16")
@each_row("forge", [_half, _backwards])
def test_libraries_refuse_other_weights_than_their_own(built, tmp_path_factory, forge):
    folder = tmp_path_factory.mktemp("forged")
    package = changed(Path(shutil.copy(built / "dist/open.tar", folder)), manifest=forge)
    with pytest.raises(PackageError, match=r"lib\.0\.so takes other weights") as caught:
        open_package(package)
    assert "\n" not in str(caught.value)


def test_a_comparison_tells_which_sizes_packages_take(built, tmp_path_factory):
    """The libraries and the configuration are the same: only what the package takes is not."""

    def forge(document):
        _signature(document)["dimensions"]["rows"]["max"] = 12

    folder = tmp_path_factory.mktemp("forged")
    package = changed(Path(shutil.copy(built / "dist/open.tar", folder)), manifest=forge)
    found = compare_builds(
        reading.read_build(built / "dist/open.tar"), reading.read_build(package)
    ).facts["configuration"]
    rows = "from 2 to {}, a multiple of 2".format
    assert [(one.name, one.old, one.new) for one in found] == [("takes.rows", rows(24), rows(12))]


@pytest.mark.fault("E16")
def test_every_library_is_looked_through(built, tmp_path):
    """A library for a likely size may hold no more than the other."""
    package = changed(
        Path(shutil.copy(built / "dist/open.tar", tmp_path)), **{"lib.1.so": b"\x7fELF bad"}
    )
    with pytest.raises(PackageError, match=r"lib\.1\.so"):
        examine_package(package)
