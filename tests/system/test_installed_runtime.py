"""The wheel `autopipe-run` opens packages in an environment that has NumPy and nothing else."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
import venv
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

from autopipe import open_package
from autopipe.api import flow
from autopipe.cli.app import build_app
from autopipe.errors import ConfigError
from autopipe.export.folder import export_package
from autopipe.export.wheel import build_wheel
from tests.export.test_serve import wait_until_ready
from tests.support.shared import once
from tests.system.test_dynamic_sizes import _built as build_open

RUN = """
import json, sys
import autopipe_runtime as runtime
import numpy as np
for package, cases, states in json.loads(sys.argv[1]):
    with runtime.open_package(package, instances=2, threads=1) as model:
        called = model.stream(states) if states else model
        for given, out in cases:
            np.savez(out, **called(dict(np.load(given)), limit=60))
print(sorted({name.partition(".")[0] for name in sys.modules} & {"autopipe", "tvm", "tvm_ffi"}))
"""

CELL = """
version: 1
name: cell
model: {path: cell.onnx}
tuning: null
benchmark: null
tasks: {allow_empty: true}
target: {mcpu: x86-64-v3, num_cores: 1}
"""


def _write_packages(folder):
    build_open(folder)
    kinds = {"x": "input", "h": "input", "y": "output", "h_next": "output"}
    ports = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in kinds}
    nodes = [helper.make_node("Add", ["x", "h"], ["h_next"]),
             helper.make_node("Tanh", ["h_next"], ["y"])]  # fmt: skip
    graph = helper.make_graph(
        nodes, "cell", [ports["x"], ports["h"]], [ports["y"], ports["h_next"]]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "cell.onnx")
    (folder / "cell.yaml").write_text(CELL)
    flow.run(folder / "cell.yaml", store=folder / "store", output=folder / "dist")


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    return once(tmp_path_factory, "packages", _write_packages) / "dist"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return next(once(tmp_path_factory, "wheel", build_wheel).glob("*.whl"))


@pytest.fixture
def python(wheel, tmp_path):
    """An interpreter that has the wheel and the NumPy of this one."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    (site,) = environment.glob("lib/python*/site-packages")
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--quiet"]
    subprocess.run([*command, "--target", site, wheel], check=True)
    numpy = Path(np.__file__).parent
    for name in ("numpy", "numpy.libs"):
        if (numpy.parent / name).exists():
            (site / name).symlink_to(numpy.parent / name)
    return environment / "bin" / "python"


def run(python, jobs, **environment):
    command = [python, "-I", "-c", RUN, json.dumps(jobs)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120,
        env={"PATH": os.defpath, **environment},
    )  # fmt: skip


def test_packages_and_folders_answer_as_in_autopipe(python, packages, tmp_path):
    random = np.random.default_rng(0)
    export_package(packages / "cell.tar", tmp_path / "folder")
    given = {
        "open": [random.standard_normal((*n, 8)).astype("float32") for n in ((8, 16), (4, 3))],
        "cell": [random.standard_normal((2, 3)).astype("float32") for _ in range(3)],
    }
    jobs, expected = [], {}
    for name, package, states in (
        ("open", packages / "open.tar", None),
        ("cell", packages / "cell.tar", {"h": "h_next"}),
        ("cell", tmp_path / "folder", {"h": "h_next"}),
    ):
        model = open_package(packages / f"{name}.tar", threads=1)
        called = model.stream(states) if states else model
        cases = []
        for at, x in enumerate(given[name]):
            case, out = (tmp_path / f"{package.name}.{at}.{end}.npz" for end in ("in", "out"))
            np.savez(case, x=x)
            expected[out] = called({"x": x})
            cases.append((str(case), str(out)))
        jobs.append((str(package), cases, states))
    done = run(python, jobs, TMPDIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    for out, outputs in expected.items():
        found = dict(np.load(out))
        assert found.keys() == outputs.keys()
        for name, array in outputs.items():
            np.testing.assert_array_equal(found[name], array)


def test_a_package_is_served(python, packages):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    command = [sys.executable, "-m", "autopipe_runtime.serve", packages / "cell.tar"]
    with subprocess.Popen(
        [*command, "--port", str(port)], env={**os.environ, "PYTHONPATH": str(site)}
    ) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_ready(url, process)
            with urllib.request.urlopen(f"{url}/v2/models/cell") as metadata:
                names = [port["name"] for port in json.loads(metadata.read())["outputs"]]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    assert names == ["y", "h_next"]


def test_the_wheel_is_the_same_each_time_and_small(wheel, tmp_path):
    done = CliRunner().invoke(build_app(), ["export", "--wheel", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    (again,) = (tmp_path / "out").iterdir()
    digests = [sha256(path.read_bytes()).hexdigest() for path in (wheel, again)]
    assert digests[0] == digests[1]
    assert again.name == wheel.name
    assert "-py3-none-manylinux_2_" in wheel.name
    assert wheel.stat().st_size < 10 << 20


@pytest.mark.parametrize(
    "words", [[], ["--to", "x"], ["package.tar"], ["package.tar", "--wheel", "x"]]
)
def test_an_export_of_nothing_is_refused(words):
    error = CliRunner().invoke(build_app(), ["export", *words]).exception
    assert isinstance(error, ConfigError)
    assert str(error) == "name a package and --to DIR, or --wheel DIR"
