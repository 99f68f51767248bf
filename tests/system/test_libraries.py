"""A model whose product OpenBLAS computes, from the pipeline file to a package that needs none."""

import json
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autopipe.api import flow
from autopipe.artifacts.signature import LIBRARY, NODES
from autopipe.errors import PackageError
from autopipe.packaging import archive
from autopipe.packaging.examine import examine_package
from autopipe.packaging.manifest import COMPONENTS, MANIFEST, WEIGHTS
from autopipe.packaging.open import open_package

PIPELINE = """
version: 1
name: product
model: {path: product.onnx}
target: {num_cores: 2}
tuning: null
schedules:
  rules:
  - {match: {op: matmul}, implementations: [openblas], engines: []}
verify: {reference: onnxruntime}
benchmark: null
"""
FILES = (COMPONENTS, LIBRARY, MANIFEST, NODES, WEIGHTS)
SHIPPED = ("libscipy_openblas.so", "libscipy_openblas.LICENSE")
OPENED = """
import sys
from importlib import metadata
import numpy as np

true = metadata.distribution
def distribution(name):
    if name.startswith("scipy"):
        raise metadata.PackageNotFoundError(name)
    return true(name)
metadata.distribution = distribution

import autopipe
from autopipe.libraries import list_versions
assert list_versions() == {}
model = autopipe.open_package(sys.argv[1])
for _ in range(3):
    np.save(sys.argv[3], model({"x": np.load(sys.argv[2])})["y"])
places = {line.split()[5] for line in open("/proc/self/maps") if "libscipy_openblas.so" in line}
print(*places)
"""


def weights():
    generator = np.random.default_rng(3)
    return {
        "w": (generator.standard_normal((256, 512)) / 16).astype("float32"),
        "b": generator.standard_normal(512).astype("float32"),
    }


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [96, 256]), ("y", [96, 512]))
    )
    tensors = [numpy_helper.from_array(array, name) for name, array in weights().items()]
    graph = helper.make_graph(nodes, "product", [x], [y], tensors)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "product.onnx")
    (folder / "product.yaml").write_text(PIPELINE)
    return folder


@pytest.fixture(scope="module")
def artifacts(project):
    return flow.run(project / "product.yaml", store=project / "store", output=project / "dist")


@pytest.fixture(scope="module")
def package(project, artifacts):
    return project / "dist" / "product.tar"


def test_a_rule_hands_the_product_to_the_library_without_a_trial(artifacts):
    document = json.loads((artifacts["build"].path / "library.json").read_text())
    (task,) = document["tasks"]
    assert (task["engine"], task["implementation"], task["checked"]) == ("static", "openblas", True)
    assert list(document["libraries"]) == ["openblas"]
    assert "verify" in artifacts


def test_the_package_brings_the_library_and_its_licence(package):
    found = examine_package(package)
    assert set(found.files) == {COMPONENTS, LIBRARY, NODES, WEIGHTS, *SHIPPED}
    assert list(found.needs.libraries) == ["openblas"]


def test_it_is_opened_where_nobody_installed_the_library(package, project, tmp_path):
    decoy = tmp_path / "decoy"
    decoy.mkdir()
    (decoy / SHIPPED[0]).write_bytes(b"not a library")
    x = np.random.default_rng(1).standard_normal((96, 256)).astype("float32")
    np.save(tmp_path / "x.npy", x)
    done = subprocess.run(
        [sys.executable, "-c", OPENED, package, tmp_path / "x.npy", tmp_path / "y.npy"],
        env={"LD_LIBRARY_PATH": str(decoy), "TMPDIR": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (place,) = {word for word in done.stdout.split() if word.endswith(".so")}
    assert place.startswith(f"{tmp_path}/autopipe-")
    known = weights()
    expected = np.maximum(x @ known["w"] + known["b"], 0)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-4, atol=1e-4)


def test_the_same_build_gives_the_same_package(package, project):
    again = project / "again"
    flow.run(
        project / "product.yaml", store=project / "store", output=again,
        force=["build", "package"],
    )  # fmt: skip
    assert (again / "product.tar").read_bytes() == package.read_bytes()


@pytest.fixture
def changed(package, tmp_path):
    """Change files of the package, or leave some out."""

    def changed(edit, without=()):
        names = {*FILES, *SHIPPED}
        with archive.open_archive(package, FILES, SHIPPED) as (file, members):
            for name in names:
                archive.extract_member(file, members[name], tmp_path / name)
        edit(tmp_path)
        out = tmp_path / "changed.tar"
        archive.write_archive(out, {name: tmp_path / name for name in names - {*without}})
        return out

    return changed


def damage(folder):
    path = folder / SHIPPED[0]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def unlist(folder):
    document = json.loads((folder / MANIFEST).read_text())
    document["subject"] = [each for each in document["subject"] if each["name"] != SHIPPED[0]]
    (folder / MANIFEST).write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("edit", "without", "said"),
    [
        (damage, (), r"'libscipy_openblas\.so' is damaged"),
        (unlist, (), r"manifest\.json lists"),
        (lambda folder: None, SHIPPED[:1], r"manifest\.json lists"),
        (
            unlist,
            SHIPPED[:1],
            r"components\.cdx\.json and the manifest differ in libscipy_openblas",
        ),
    ],
    ids=["damaged", "not listed", "left out", "gone"],
)
def test_a_package_with_another_library_is_refused(changed, edit, without, said):
    with pytest.raises(PackageError, match=said):
        open_package(changed(edit, without))
