"""A whole model, compiled for another kind of machine.

Wanted: Debian's `gcc-aarch64-linux-gnu`, or another compiler of that name. To run its folder,
Debian's `qemu-user`, and in the folder that `$AUTOPIPE_TEST_WHEELS` names the wheels that
`autopipe export` asks for.
"""

import os
import shutil
import struct
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest

from autopipe.api import flow
from autopipe.errors import StageError
from autopipe.export.folder import export_package
from autopipe.pipeline.events import Warn

MODEL = Path(__file__).parents[2] / "pipelines" / "models" / "mlp.onnx"
COMPILER = "aarch64-linux-gnu-gcc"
EMULATOR = "qemu-aarch64"
WHEELS = os.environ.get("AUTOPIPE_TEST_WHEELS", "")
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


needs_compiler = pytest.mark.skipif(
    shutil.which(COMPILER) is None, reason=f"{COMPILER} is not installed"
)


@needs_compiler
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


def emulate(folder, *words):
    """Run the program of an exported folder as its processor would."""
    root = f"/usr/{COMPILER.removesuffix('-gcc')}"
    return subprocess.run(
        [EMULATOR, "-L", root, folder / "bin" / "run", *words], capture_output=True, text=True,
        check=False, timeout=120, env={},
    )  # fmt: skip


@needs_compiler
@pytest.mark.skipif(shutil.which(EMULATOR) is None, reason=f"{EMULATOR} is not installed")
@pytest.mark.skipif(not WHEELS, reason="AUTOPIPE_TEST_WHEELS names no folder of wheels")
def test_its_folder_agrees_with_the_reference_under_an_emulator(tmp_path):
    file = tmp_path / "mlp.yaml"
    file.write_text(PIPELINE)
    flow.run(file, store=tmp_path / "store", output=tmp_path / "dist")
    package, wheels = tmp_path / "dist" / "mlp.tar", [Path(WHEELS)]
    folders = [
        export_package(package, tmp_path / name, wheels=wheels, model=str(MODEL))
        for name in ("first", "second")
    ]
    digests = {(folder / "SHA256SUMS").read_bytes() for folder in folders}
    assert len(digests) == 1
    tested = emulate(folders[0], "--self-test", "--verify")
    assert (tested.returncode, tested.stderr) == (0, "")
    assert tested.stdout.splitlines()[-1] == "2 of 2 cases right"
    output = folders[0] / "cases" / "0.output.0.npy"
    np.save(output, np.load(output)[::-1])
    assert emulate(folders[0], "--self-test").returncode == 1
    text = (folders[0] / "model.txt").read_text()
    (folders[0] / "model.txt").write_text(text.replace("neon asimd", "sve9 sve9"))
    lacking = emulate(folders[0], "--describe")
    assert (lacking.returncode, "lacks sve9" in lacking.stderr) == (4, True), lacking.stderr
