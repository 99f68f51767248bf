"""Registers of tiles are configured once a thread, and Linux is asked for them, in any process."""

import subprocess
import sys

import pytest
from tvm import tirx

from autopipe.compiler.codegen.compile_kernels import compile_kernel, export_library
from autopipe.compiler.codegen.configure_tiles import (
    CONFIGURE,
    RELEASE,
    SYSTEM_CALL,
    configure_tiles,
)
from autopipe.compiler.target.cpu import list_host_features
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
    return compile_kernel(planned.module, made.target)


def test_a_kernel_with_tiles_asks_and_no_other_does():
    assert SYSTEM_CALL in kernel("sapphirerapids").inspect_source("ll")
    assert "asm" not in kernel(VNNI).inspect_source("ll")


def block(*words):
    """Return what configures registers by 1 and some words, and releases them."""
    told = [tirx.const(word) for word in (1, *words, *[0] * (15 - len(words)))]
    return [
        tirx.Evaluate(tirx.call_llvm_intrin("void", CONFIGURE, *told)),
        tirx.Evaluate(tirx.call_llvm_intrin("void", RELEASE)),
    ]


def looped(kind, *statements):
    body = tirx.SeqStmt(list(statements))
    return tirx.For(tirx.Var("i", "int32"), tirx.const(0), tirx.const(4), kind, body)


def nested(outer, inner):
    return looped(outer, looped(inner, *block()), NOTHING)


def written(*statements):
    body = configure_tiles(tirx.PrimFunc([], tirx.SeqStmt([*statements, NOTHING]))).body
    while str(getattr(body, "attr_key", "")) == "pragma_import_llvm":
        body = body.body
    return [line.strip() for line in tirx.PrimFunc([], body).script().splitlines()
            if any(word in line for word in ("tile", "range", "parallel", "T.grid"))]  # fmt: skip


NOTHING = tirx.Evaluate(tirx.const(0))
SERIAL, PARALLEL = tirx.ForKind.SERIAL, tirx.ForKind.PARALLEL


def kinds(lines):
    """Return what each line does."""
    words = ("autopipe_tiles", "tilerelease", "launch_point", "T.parallel", "range", "T.grid")
    return [next(word for word in words if word in line) for line in lines]


def test_loops_are_configured_once():
    lines = kinds(written(nested(SERIAL, SERIAL)))
    assert (lines[0], lines[-1]) == ("autopipe_tiles", "tilerelease")
    assert set(lines[1:-1]) <= {"T.grid", "range"}


def test_each_thread_configures_for_itself():
    lines = kinds(written(nested(PARALLEL, SERIAL)))
    assert lines[:3] == ["launch_point", "autopipe_tiles", "T.parallel"]
    assert lines[-1] == "tilerelease"


def test_threads_are_not_begun_anew_by_an_outer_loop():
    assert kinds(written(nested(SERIAL, PARALLEL)))[:4] == [
        "range",
        "launch_point",
        "autopipe_tiles",
        "T.parallel",
    ]


def test_two_configurations_stay_where_they_are():
    lines = written(looped(SERIAL, *block(1), *block(2)))
    assert kinds(lines) == ["range", *["autopipe_tiles", "tilerelease"] * 2]
    assert lines[1] != lines[3]


@pytest.mark.skipif(not list_host_features() >= TILES, reason="no tiles here")
def test_a_process_that_asked_for_nothing_runs_a_library_with_tiles(tmp_path):
    path = tmp_path / "tiles.so"
    export_library(kernel("sapphirerapids"), path)
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
