"""A pipeline with its lock, as several files of whole runs start from it."""

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from autopipe.api import flow
from tests.support import shared
from tests.support.kept import one_process  # noqa: F401 -- a fixture

ROOT = Path(__file__).parents[2]

NO_NETWORK = """
import socket
def refuse(*arguments, **options):
    raise RuntimeError("the network was asked")
socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
"""

CHECKED_IN = shutil.ignore_patterns("store", "dist")
"""Leaves what is not checked in."""

PIPELINE = """
version: 1
name: mlp
model:
  path: models/mlp.onnx
  inputs:
    input: {shape: [8, 128], dtype: float32}
tasks: {judge: {min_gain: 0}}
tuning:
  budget: {trials: 8, time: null}
  batch: 8
benchmark: null
"""
"""No task is too close to its bound to be searched, and the trials are one batch of one task."""


def _locked(folder: Path) -> None:
    (folder / "models").mkdir()
    shutil.copy(ROOT / "pipelines/models/mlp.onnx", folder / "models")
    (folder / "mlp.yaml").write_text(PIPELINE)
    flow.run(folder / "mlp.yaml", store=folder / "store", output=folder / "dist")


@pytest.fixture(scope="package")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checked-out pipeline with its lock, and the package that it was written with; read only."""
    return shared.once(tmp_path_factory, "locked", _locked)


def _replayed(locked: Path, folder: Path) -> None:
    shutil.copytree(locked, folder, ignore=CHECKED_IN, dirs_exist_ok=True)
    for name in ("guard", "TMPDIR"):
        (folder / name).mkdir()
    (folder / "guard" / "sitecustomize.py").write_text(NO_NETWORK)
    command = [sys.executable, "-m", "autopipe", "run", "mlp.yaml", "--frozen", "--store", "store"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{folder / 'guard'}:{ROOT}",
             "TMPDIR": str(folder / "TMPDIR")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (folder / "said").write_text(done.stdout)


@pytest.fixture(scope="package")
def replayed(locked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone that the command built from its lock alone, without network; read only.

    What it printed is in the file `said`.
    """
    return shared.once(tmp_path_factory, "replayed", partial(_replayed, locked))


@pytest.fixture
def clone(locked: Path, tmp_path: Path) -> Path:
    """A fresh clone: what is checked in, and nothing else."""
    return Path(shutil.copytree(locked, tmp_path / "clone", ignore=CHECKED_IN))


@pytest.fixture
def warm(locked: Path, clone: Path) -> Path:
    """A clone with the store of the first run."""
    shutil.copytree(locked / "store", clone / "store")
    return clone


@pytest.fixture
def rebuilt(replayed: Path, clone: Path) -> Path:
    """A clone with the store of a run that replayed its lock; nothing was ever tuned there."""
    shutil.copytree(replayed / "store", clone / "store")
    return clone
