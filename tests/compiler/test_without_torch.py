"""PyTorch beside TVM, which would import it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.table import each_row

ROOT = Path(__file__).parents[2]


@pytest.fixture
def torch(tmp_path, monkeypatch):
    """Put a PyTorch in front of others; return the file that it leaves where it is imported."""
    (tmp_path / "torch.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()\n")
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return tmp_path / "imported"
