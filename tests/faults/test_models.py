"""List B, from the command line: a model that can not be used is exit 3, in a line."""

import os
import subprocess
import sys

import pytest
from onnx import helper

from tests.compiler.frontends.models import dense, external, save
from tests.support.leaks import PLANTED


def evil():
    made = dense()
    made.graph.node[0].domain = "com.evil"
    made.opset_import.append(helper.make_opsetid("com.evil", 1))
    return made.SerializeToString()


def pickled():
    return b"cos\nsystem\n(S'touch marker'\ntR."


@pytest.mark.fault("B1", "B2", "B7", "B8", "B9", "B15")
@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("a.onnx", b"", "the file is empty"),
        ("a.onnx", dense().SerializeToString()[:-40], "no ONNX model, or part of one"),
        ("a.onnx", b"\x89PNG\r\n\x1a\n" + bytes(100), "108 bytes that are no ONNX model"),
        ("a.onnx", evil(), "com.evil::MatMul (node 'MatMul of product')"),
        ("a.onnx", dense(opset=999).SerializeToString(), "opset 999 is not supported"),
        ("a.onnx", dense(opset=1).SerializeToString(), "opset 1 is not supported"),
        ("a.pt", pickled(), "pickle files can run code"),
        ("a.onnx", b"\x80\x04" + pickled(), "pickle files can run code"),
    ],
)
def test_what_can_not_be_used_is_refused_in_a_line(autopipe, tmp_path, name, data, says):
    (tmp_path / name).write_bytes(data)
    done = autopipe("init", tmp_path / name, "-o", tmp_path / "new.yaml")
    assert (done.code, done.out) == (3, "")
    assert says in done.err
    assert len(done.err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [name]


@pytest.mark.fault("B3", "G15")
@pytest.mark.parametrize("way", ["a path", "a link"])
def test_a_secret_beside_a_model_does_not_get_into_the_store(tmp_path, tmp_path_factory, way):
    """`no_leaks` looks for it below `tmp_path`."""
    secret = tmp_path_factory.mktemp("elsewhere") / "secret.bin"
    secret.write_text(os.environ[PLANTED] + "!" * 16)
    (tmp_path / "data.bin").symlink_to(secret)
    made = dense()
    location = "data.bin" if way == "a link" else os.path.relpath(secret, tmp_path)
    assert len(external(made, location)) == secret.stat().st_size
    save(made, tmp_path)
    (tmp_path / "demo.yaml").write_text("version: 1\nname: demo\nmodel: {path: model.onnx}\n")
    done = subprocess.run(
        [sys.executable, "-m", "autopipe", "run", "demo.yaml", "--until", "import"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "tensor 'weight'" in done.stderr
    assert os.environ[PLANTED] not in done.stdout + done.stderr
