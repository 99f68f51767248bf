"""The model LeNet with its gradients: the source that is checked in is what its maker writes."""

import subprocess
import sys
from pathlib import Path

PIPELINES = Path(__file__).parents[3] / "pipelines"


def test_the_source_is_what_its_maker_writes(tmp_path):
    maker = PIPELINES / "models" / "make_lenet.py"
    subprocess.run([sys.executable, maker, tmp_path], check=True, timeout=120, capture_output=True)
    assert (tmp_path / "lenet.py").read_text() == (PIPELINES / "tasks" / "lenet.py").read_text()
