"""Kernels ask Linux for the registers of tiles before they use them, in any process."""

import subprocess
import sys

import pytest

from autopipe.compiler.target.cpu import available
from autopipe.compiler.tile_permission import SYSTEM_CALL
from autopipe.compiler.walls import gate
from autopipe.schedules.engines import static
from tests.schedules.templates.test_dot_product import VNNI, conditions, matmul, module_of

TILES = {"amx-int8", "amx-tile"}

ALONE = """
import sys
import numpy, tvm
x = numpy.arange(64 * 64, dtype="uint8").reshape(64, 64)
w = numpy.eye(64, dtype="int8")
out = tvm.runtime.tensor(numpy.zeros((64, 64), "int32"))
library = tvm.runtime.load_module(sys.argv[1])
library["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w), out)
assert (out.numpy() == x).all()
"""


def kernel(mcpu):
    made = conditions(mcpu)
    planned = static.plan(module_of(*matmul(rows=64, depth=64, columns=64)), made)
    assert planned is not None
    return gate.kernel(planned.module, made.target)


def test_a_kernel_with_tiles_asks_and_no_other_does():
    assert SYSTEM_CALL in kernel("sapphirerapids").inspect_source("ll")
    assert "asm" not in kernel(VNNI).inspect_source("ll")


@pytest.mark.skipif(not available() >= TILES, reason="no tiles here")
def test_a_process_that_asked_for_nothing_runs_a_library_with_tiles(tmp_path):
    path = tmp_path / "tiles.so"
    gate.export(kernel("sapphirerapids"), path)
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
