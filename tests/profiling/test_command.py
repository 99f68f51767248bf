"""`autopipe profile` on a package and on a pipeline file, in processes as a user starts them."""

import json
import shutil
from pathlib import Path

import pytest

from autopipe.api import flow
from autopipe.api.profile import find_target
from autopipe.artifacts.model_nodes import name_kernel
from autopipe.artifacts.signature import NODES
from autopipe.errors import ConfigError, PackageError
from tests.compiler.frontends.models import dense, model, node, save, tensor, value
from tests.packaging.packages import changed

PIPELINE = """
version: 1
name: small
model: {path: small.onnx}
layout: {conv2d: [NHWC, HWIO]}
tuning: null
benchmark: null
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A small model with a convolution, and its build."""
    folder = tmp_path_factory.mktemp("profiled")
    made = model(
        [
            node("Conv", ["x", "w"], "c", pads=[1, 1, 1, 1]), node("Relu", ["c"], "r"),
            node("Flatten", ["r"], "f"), node("MatMul", ["f", "m"], "y"),
        ],
        [value("x", [1, 4, 16, 16])], [value("y", None)],
        [tensor("w", 8, 4, 3, 3), tensor("m", 2048, 10)],
    )  # fmt: skip
    save(made, folder, "small.onnx")
    (folder / "small.yaml").write_text(PIPELINE)
    flow.run(folder / "small.yaml", store=folder / "store", output=folder / "dist")
    return folder


def run(*words):
    """Run the command in this process; the build runs in a child."""
    from typer.testing import CliRunner

    from autopipe.cli.app import build_app

    result = CliRunner().invoke(build_app(), ["profile", *map(str, words)], catch_exceptions=False)
    return result.stdout


def test_a_page_shows_kernels_against_their_bound(built, tmp_path):
    from typer.testing import CliRunner

    from autopipe.cli.app import build_app
    from tests.report.pages import Page

    words = ["report", str(built / "dist" / "small.tar"), "-o", str(tmp_path / "a.html")]
    CliRunner().invoke(build_app(), [*words, "--profile"], catch_exceptions=False)
    page = Page((tmp_path / "a.html").read_text())
    assert "Kernels of the built model" in [told for tag, told in page.texts if tag == "caption"]
    with pytest.raises(ConfigError, match="--profile runs a build"):
        CliRunner().invoke(build_app(), ["report", "a.lock", "--profile"], catch_exceptions=False)


def test_a_package_is_profiled_by_node(built, tmp_path):
    trace = tmp_path / "t.json"
    package = built / "dist" / "small.tar"
    told = json.loads(run(package, "--json", "--runs", 3, "--trace", trace))
    kernels = [row for row in told["rows"] if row["kernel"]]
    named = {name for row in kernels for name in row["nodes"]}
    assert {"Conv of c", "Relu of r", "MatMul of y"} <= named
    assert any(row["added"] for row in kernels)
    assert any(row["gflops"] for row in kernels)
    # A kernel may take less time than the overhead that is subtracted from it.
    assert all(bool(row["gbps"]) == bool(row["seconds"]) for row in kernels)
    assert any(row["gbps"] for row in kernels)
    assert all(one["bytes"] for one in told["calls"] if one["kernel"])
    assert abs(sum(row["share"] for row in told["rows"]) - 1) < 1e-6
    assert told["shapes"] == {"x": [1, 4, 16, 16]}
    events = json.loads(trace.read_text())["traceEvents"]
    names = [event["name"] for event in events if event["ph"] == "X"]
    assert names == [name_kernel(one["symbol"]) for one in told["calls"]]


def test_a_pipeline_file_is_its_last_build_and_stands_beside_onnxruntime(built):
    told = run(built / "small.yaml", "--store", built / "store", "--runs", 3,
               "--against", "onnxruntime")  # fmt: skip
    assert "Conv of c, Relu of r" in told
    assert "whole run: ours" in told


def test_the_map_of_a_package_is_that_of_its_build(built):
    package = find_target(built / "dist" / "small.tar")
    assert package.nodes == find_target(built / "small.yaml", store=built / "store").nodes
    assert [one.name for one in package.nodes.nodes][:2] == ["Conv of c", "Relu of r"]


def test_a_pipeline_file_without_a_build_says_so(tmp_path):
    save(dense(), tmp_path, "small.onnx")
    file = Path(tmp_path, "small.yaml")
    file.write_text(PIPELINE)
    with pytest.raises(ConfigError, match="no build in the store; run `autopipe run"):
        find_target(file, store=tmp_path / "store")


@pytest.mark.parametrize(
    ("forge", "why"),
    [
        (lambda document: document["nodes"][0].update(op=1), "nodes.0.op: Input should be a valid"),
        (
            lambda document: [one.update(flops=1e308) for one in document["libraries"][0]["work"]],
            "libraries.0.work.0.flops: Input should be less than or equal to",
        ),
    ],
)
def test_a_forged_map_is_refused_in_one_line(built, tmp_path, forge, why):
    package = Path(shutil.copy(built / "dist" / "small.tar", tmp_path))
    document = find_target(package).nodes.model_dump(mode="json")
    forge(document)
    forged = changed(package, **{NODES: json.dumps(document).encode()})
    with pytest.raises(PackageError) as caught:
        find_target(forged)
    assert str(caught.value).startswith(f"{forged}: nodes.json: {why}")
