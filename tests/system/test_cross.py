"""A whole model, compiled for another kind of machine.

Wanted: Debian's `gcc-aarch64-linux-gnu`, or another compiler of that name.
"""

import shutil
import struct
import tarfile
from pathlib import Path

import pytest

from autopipe.api import flow
from autopipe.errors import StageError
from autopipe.pipeline.events import Warn

MODEL = Path(__file__).parents[2] / "pipelines" / "models" / "mlp.onnx"
COMPILER = "aarch64-linux-gnu-gcc"
AARCH64 = 183
"""The number of the machine in an ELF file."""

PIPELINE = f"""
version: 1
name: mlp
model: {{path: {MODEL}, inputs: {{input: {{shape: [8, 128], dtype: float32}}}}}}
target: {{mcpu: cortex-a72, mtriple: aarch64-linux-gnu, linker: {COMPILER}, num_cores: 2}}
tuning: null
verify: null
benchmark: null
"""


@pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"{COMPILER} is not installed")
def test_a_package_for_another_machine_is_made_here(tmp_path):
    file = tmp_path / "mlp.yaml"
    file.write_text(PIPELINE)
    told: list[object] = []
    flow.run(file, store=tmp_path / "store", output=tmp_path / "dist", emit=told.append)
    (warning,) = [event for event in told if isinstance(event, Warn) and event.stage == "verify"]
    assert "code for aarch64 does not run on this machine" in warning.message
    assert "the package is compared with nothing" in warning.message
    with tarfile.open(tmp_path / "dist" / "mlp.tar") as package:
        member = package.extractfile("lib.so")
        assert member is not None
        library = member.read()
    assert library[:4] == b"\x7fELF"
    assert struct.unpack_from("<H", library, 18) == (AARCH64,)
    assert f'linker: "{COMPILER} (' in (tmp_path / "mlp.lock").read_text()
    overrides = ["target.linker=g++"]  # of this machine
    with pytest.raises(StageError, match=r"linking failed: .*target\.linker is .*/g\+\+"):
        flow.run(file, store=tmp_path / "store", overrides=overrides, until="build")
