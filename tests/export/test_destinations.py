"""The C library has kernels write outputs to memory of the caller."""

import json
import shutil
from hashlib import sha256

import numpy as np
import pytest

from autopipe.compiler.target import cpu
from autopipe.export.wheel import write_runtime
from autopipe.runtime import folder as runtime
from autopipe.runtime.description import describe_builds
from tests.export.sanitized import ADDRESS, HERE, THREAD, compile_client, has_sanitizer, run_checked
from tests.support import large_outputs
from tests.support.large_outputs import NAMES, SIGNATURE, X, compute
from tests.support.shared import once


@pytest.fixture
def folder(tmp_path, tmp_path_factory):
    """A folder with what the C library reads of an exported one."""
    made = once(
        tmp_path_factory, "lib", lambda to: write_runtime(to / "lib", cpu.find_architecture({}))
    )
    model = once(tmp_path_factory, "large", large_outputs.write_library)
    needs = {
        "signature": SIGNATURE.model_dump(mode="json"),
        "processor": {"machine": cpu.find_architecture({}), "mcpu": "any", "features": []},
    }
    to = tmp_path / "model"
    shutil.copytree(made / "lib", to / "lib")
    for name in ("lib.so", "weights.safetensors"):
        shutil.copy(model / name, to)
    (to / "model.txt").write_text(next(describe_builds(needs, {}))[1])
    stated = json.loads((to / "lib" / "runtime.json").read_text())["sha256"]
    digests = {f"lib/{name}": digest for name, digest in stated.items()}
    digests["lib.so"] = sha256((to / "lib.so").read_bytes()).hexdigest()
    (to / "SHA256SUMS").write_text("".join(f"{d}  {name}\n" for name, d in digests.items()))
    (to / "include").symlink_to(HERE.parents[1] / "autopipe" / "export" / "native")
    return to


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize(
    "options",
    [("-O1", "-DCOUNT"), ADDRESS, THREAD],
    ids=["counted", "address", "thread"],
)
def test_outputs_are_right_wherever_they_are(folder, tmp_path, options):
    if "-DCOUNT" not in options and not has_sanitizer(options):
        pytest.skip(f"no {options[2]}")
    client = compile_client(HERE / "destinations.c", folder, tmp_path / "client", options)
    done = run_checked([client, folder], tmp_path)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stdout + done.stderr[-4000:]


def test_the_loader_for_python_gives_its_arrays(folder):
    buffers = {port.name: np.empty(port.shape, "float32") for port in SIGNATURE.outputs}
    with runtime.open_package(folder, threads=1) as model:
        returned = model({"x": X}, outputs=buffers)
        again = model({"x": X})
    assert all(returned[name] is buffers[name] for name in NAMES)
    for name, expected in compute(X).items():
        np.testing.assert_allclose(returned[name], expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(again[name], returned[name])
