"""What the page about security promises, line by line."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autopipe.pipeline.isolate import Zygote
from autopipe.processes import call
from autopipe.processes.variables import select_variables
from tests.faults.forbidden import forbidden
from tests.support.demo import command, environment
from tests.support.table import each_row

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "autopipe").rglob("*.py"))
SECRETS = {"AWS_SECRET_ACCESS_KEY": "a" * 20, "GITHUB_TOKEN": "b" * 20, "SSH_AUTH_SOCK": "c" * 20}


@pytest.fixture
def section():
    return (ROOT / "docs" / "security.md").read_text("utf-8")


LOOKED_AT = {
    "autopipe/compiler/library/samples.py": ["import zipfile"],
    "autopipe/export/runtime_files.py": ["import zipfile"],
    "autopipe/export/wheel.py": ["import zipfile"],
}
"""The first reads a member only up to the size that the model takes, and writes no file. Of wheels
that the user names, the second reads the libraries whose names it knows; the third writes one."""


@pytest.mark.fault("A5", "B15")
def test_nothing_loads_programs_or_starts_shells():
    found = {
        str(path.relative_to(ROOT)): pieces
        for path in SOURCES
        if (pieces := forbidden(path.read_text("utf-8")))
    }
    assert found == LOOKED_AT


@each_row(
    "source",
    ["import pickle", "from cloudpickle import loads", "import torch.nn", "eval(text)",
     "exec(text)", "subprocess.run(text, shell=True)", "subprocess.run(text, shell=asked)",
     "os.system(text)", "yaml.load(text)", "yaml.load(text, Loader=yaml.Loader)",
     "from yaml import unsafe_load", "np.load(path)", "np.load(path, allow_pickle=True)",
     "numpy.save(path, array)", "tarfile.open(path)", "tar.extractall(folder)",
     "from tarfile import open", "__import__(name)"],
)  # fmt: skip
def test_what_loads_programs_would_be_seen(source):
    assert forbidden(source)


@pytest.mark.parametrize(
    "source",
    ["np.load(path, allow_pickle=False)", "json.load(file)", "re.compile(x)", "model.eval()"],
)
def test_what_is_harmless_is_left_alone(source):
    assert forbidden(source) == []


def variables(source):
    """Yield the names of environment variables that code reads or sets."""
    for node in ast.walk(ast.parse(source)):
        name: ast.AST | None = None
        if isinstance(node, ast.Call) and node.args:
            called = ast.unparse(node.func)
            if called in {"os.getenv", "getenv"} or re.search(r"\benviron\.\w+$", called):
                name = node.args[0]
        elif isinstance(node, ast.Subscript) and re.search(r"\benviron$", ast.unparse(node.value)):
            name = node.slice
        if isinstance(name, ast.Constant):
            yield name.value


@pytest.mark.fault("A10")
def test_variables_that_are_read_are_named(section):
    read = {name for path in SOURCES for name in variables(path.read_text("utf-8"))}
    set_for_libraries = {"TVM_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS",
                         "TVM_THREAD_POOL_SPIN_COUNT"}  # fmt: skip
    assert "AUTOPIPE_STORE" in read
    assert {name for name in read - set_for_libraries if f"`{name}`" not in section} == set()


def test_our_processes_are_started_with_named_variables():
    """One is not, which asks a driver and sees no model; and one needs credentials besides."""
    starts = {
        path.relative_to(ROOT / "autopipe").as_posix(): "select_variables" in source
        for path in SOURCES
        if "sys.executable" in (source := path.read_text("utf-8"))
    }
    assert {name for name, named in starts.items() if not named} == {"environment/cuda.py"}
    assert starts["processes/start.py"]
    trusted = {path for path in SOURCES if "credentials=True" in path.read_text("utf-8")}
    assert trusted == {ROOT / "autopipe/remote/courier.py"}


def told(_argument, _emit):
    return sorted(os.environ)


def answered(_request):
    return {"names": sorted(os.environ)}


@pytest.mark.fault("A10")
def test_processes_that_work_on_models_get_no_credentials(tmp_path, monkeypatch):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYDANTIC_DISABLE_PLUGINS", "__all__")
    with Zygote(preload=()) as zygote:
        there = zygote.call(told, {}, tmp_path / "log", print)
    assert isinstance(there, list)
    asked = call.run_module("tests.faults.test_security", {})["names"]
    for names in (there, asked):
        assert {"PATH", "PYTHONPATH", "ORT_DISABLE_TELEMETRY", "PYDANTIC_DISABLE_PLUGINS"} <= set(
            names
        )
        assert not SECRETS.keys() & set(names)


def test_our_processes_import_nothing_from_the_current_folder():
    """A `tvm.py` that lies beside a pipeline file is not what they take for TVM."""
    text = "".join(path.read_text("utf-8") for path in SOURCES)
    assert set(re.findall(r"\[sys\.executable, (\S+),", text)) == {'"-P"', '"-I"'}


def test_what_is_handed_on_can_be_replaced(monkeypatch):
    monkeypatch.setenv("TMPDIR", "there")
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    assert select_variables()["TMPDIR"] == "there"
    assert select_variables(TMPDIR="here")["TMPDIR"] == "here"
    assert "secret" not in select_variables().values()


GUARD = """
import sys
def guard(event, arguments):
    if event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto"):
        if event == "socket.getaddrinfo" or isinstance(arguments[1], tuple):
            open({file!r}, "a").write(f"{{event}} {{arguments!r}}\\n")
sys.addaudithook(guard)
"""


@pytest.fixture
def guard(tmp_path, monkeypatch):
    """Let every Python process write down what it connects to; return what was written."""
    file = tmp_path / "connections"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(GUARD.format(file=str(file)))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), str(ROOT)]))
    return lambda: file.read_text() if file.exists() else ""


def test_the_guard_sees_connections(guard):
    code = "import socket; socket.socket().connect_ex(('127.0.0.1', 9))"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert "socket.connect" in guard()


def test_a_run_opens_no_connection(guard, tmp_path):
    (tmp_path / "model.txt").write_text("abc")
    (tmp_path / "demo.yaml").write_text("version: 1\nname: demo\nmodel: {path: model.txt}\n")
    env = environment(do="write") | {"PYTHONPATH": os.environ["PYTHONPATH"]}
    for arguments in (["run", "demo.yaml"], ["plan", "demo.yaml"], ["cache", "ls"]):
        done = subprocess.run(
            command(*arguments), cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert guard() == ""


@pytest.mark.slow
@pytest.mark.fault("A10")
def test_a_whole_run_opens_no_connection_and_writes_no_secret(guard, tmp_path, monkeypatch):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    done = subprocess.run(
        [sys.executable, "-m", "autopipe", "run", ROOT / "pipelines/mlp.yaml", "--store", "store",
         "--set", "tuning.budget.trials=16"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert guard() == ""
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert (tmp_path / "dist" / "mlp.tar") in files
    for value in SECRETS.values():
        assert [path for path in files if value.encode() in path.read_bytes()] == []


if __name__ == "__main__":
    call.serve_request(answered)
