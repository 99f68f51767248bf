"""A pipeline with its lock, as several files of whole runs start from it."""

import shutil
from pathlib import Path

import pytest

from autopipe.api import flow
from tests.support import shared

ROOT = Path(__file__).parents[2]

PIPELINE = """
version: 1
name: mlp
model:
  path: models/mlp.onnx
  inputs:
    input: {shape: [8, 128], dtype: float32}
tuning:
  budget: {trials: 8, time: null}
  batch: 8
benchmark: null
"""


def _locked(folder: Path) -> None:
    (folder / "models").mkdir()
    shutil.copy(ROOT / "pipelines/models/mlp.onnx", folder / "models")
    (folder / "mlp.yaml").write_text(PIPELINE)
    flow.run(folder / "mlp.yaml", store=folder / "store", output=folder / "dist")


@pytest.fixture(scope="session")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checked-out pipeline with its lock, and the package that it was written with; read only."""
    return shared.once(tmp_path_factory, "locked", _locked)


@pytest.fixture
def clone(locked: Path, tmp_path: Path) -> Path:
    """A fresh clone: what is checked in, and nothing else."""
    folder = tmp_path / "clone"
    ignored = shutil.ignore_patterns("store", "dist")
    return Path(shutil.copytree(locked, folder, ignore=ignored))


@pytest.fixture
def warm(locked: Path, clone: Path) -> Path:
    """A clone with the store of the first run."""
    shutil.copytree(locked / "store", clone / "store")
    return clone
