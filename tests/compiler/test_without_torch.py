"""PyTorch beside TVM, which would import it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autopipe.compiler.without_torch import without_torch

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "imports",
    ["import autopipe.compiler.import_tvm, autopipe.stages, autopipe.tuning.run",
     "from autopipe.compiler.library import runtime; runtime.load_with('none', None, None)"],
)  # fmt: skip
def test_importing_tvm_leaves_pytorch_out(tmp_path, imports):
    """What imports TVM forks children that may use a GPU, and PyTorch would ask CUDA for one."""
    mark = tmp_path / "imported"
    (tmp_path / "torch.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    code = f"""
try:
    {imports}
except AttributeError:  # there is nothing to load
    pass
import os, sys
assert "tvm_ffi" in sys.modules and not os.path.exists({str(mark)!r})
import torch  # whoever wants it may have it
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert mark.exists()


def test_pytorch_that_is_there_stays(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", os)
    with without_torch():
        assert sys.modules["torch"] is os
    assert sys.modules["torch"] is os
