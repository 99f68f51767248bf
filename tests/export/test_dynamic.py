"""An exported folder whose model takes every number of rows in a range."""

import json
import subprocess
import sys

import numpy as np
import pytest

from autopipe.runtime import folder as loader
from autopipe.runtime.description import describe_builds
from tests.export.forging import forge_folder, replace_file
from tests.export.test_export import run
from tests.support.shared import once

ROWS = 1 << 21
"""Of 16 bytes each."""
CALLS = """
import sys
sys.path.insert(0, sys.argv[1] + "/python")
import numpy as np
import autopipe_runtime as runtime
random, resident = np.random.default_rng(0), []
x = np.ones((int(sys.argv[2]), 4), "float32")
with runtime.open_package(sys.argv[1], instances=2) as model:
    for call in range(int(sys.argv[3])):
        rows = len(x) - 512 * call if sys.argv[4:] else int(random.integers(1, len(x) // 2)) * 2
        y = model({"x": x[:rows]})["y"]
        assert y.shape == (rows, 4) and y[-1, -1] == 2
        resident.append(int(open("/proc/self/statm").read().split()[1]) * 4 / 1024)
tenth = len(resident) // 10
print(max(resident[tenth : 2 * tenth]), max(resident[9 * tenth :]))
"""


@pytest.fixture
def doubling(tmp_path_factory):
    """A library that doubles rows of four numbers: an even number of them."""
    return once(tmp_path_factory, "dynamic", _build) / "lib.so"


@pytest.fixture
def dynamic(doubling, folder, tmp_path):
    """A folder of the library for rows up to ROWS."""
    return describe_rows(doubling, folder, tmp_path / "dynamic", {"dimensions": ["rows", ""]})


def describe_rows(library, folder, to, stated, least=2):
    """Make a folder of the library that states something of the sizes of its output."""
    dimension = {"min": least, "max": ROWS, "multiple": 2}
    port = {"dtype": "float32", "shape": [-1, 4]}
    signature = {
        "threads": 1, "dimensions": {"rows": dimension}, "entries": [], "weights": [],
        "inputs": [port | {"name": "x", "dimensions": ["rows", ""]}],
        "outputs": [port | {"name": "y"} | stated],
    }  # fmt: skip
    processor = {"machine": "x86_64", "mcpu": "x86-64", "features": []}
    ((_, text),) = describe_builds({"signature": signature, "processor": processor}, {})

    def change(to):
        replace_file("lib.so", library.read_bytes())(to)
        replace_file("model.txt", text.encode())(to)

    return forge_folder(folder, to, change)


def _build(to):
    import tvm
    from tvm import relax, tirx

    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([2 * n, 4], "float32"))
    steps = relax.Var("steps", relax.ShapeType([n]))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, steps]):
        builder.emit_func_output(builder.emit(relax.op.add(x, x)))
    built = tvm.compile(builder.get(), tvm.target.Target({"kind": "llvm"}))
    built.export_library(str(to / "lib.so"))


@pytest.mark.parametrize(
    ("shape", "code", "reason"),
    [
        ((2, 4), 0, ""), ((ROWS, 4), 0, ""), ((3, 4), 2, "not a multiple of 2 from 2 to 2097152"),
        ((0, 4), 2, "is 0"), ((ROWS + 2, 4), 2, "is 2097154"), ((2, 3), 2, "dimension 1 is 3"),
        ((8,), 2, "has 1 dimensions"),
    ],
)  # fmt: skip
def test_sizes_out_of_range_are_refused(dynamic, tmp_path, shape, code, reason):
    np.save(tmp_path / "x.npy", np.ones(shape, "float32"))
    words = ("--input", f"x={tmp_path}/x.npy", "--output", str(tmp_path / "out"))
    done = run(dynamic, "--folder", str(dynamic), *words)
    assert (done.returncode, reason in done.stderr) == (code, True), done.stderr
    if not code:
        np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy"), np.full(shape, 2.0))


def test_no_rows_are_taken_where_there_may_be_none(dynamic, doubling):
    stated = {"dimensions": ["rows", ""]}
    made = describe_rows(doubling, dynamic, dynamic.with_name("none"), stated, least=0)
    with loader.open_package(made) as model:
        assert (model.inputs[0].minimum, model.outputs[0].minimum) == ((0, 4), (0, 4))
        for rows in (0, 2, 0):
            y = model({"x": np.ones((rows, 4), "float32")})["y"]
            assert (y.shape, (y == 2).all()) == ((rows, 4), True)


@pytest.mark.parametrize(
    ("stated", "ends", "words"),
    [
        ({"dimensions": ["rows", ""]}, (2, ROWS), f"2 to {ROWS} by 2"),
        ({"dimensions": ["rows + 3", ""]}, (5, ROWS + 3), f"5 to {ROWS + 3}"),
        ({"ranges": [[1, 64], None]}, (1, 64), "1 to 64"),
        ({"ranges": [[0, 1 << 40], None]}, (0, 1 << 40), f"0 to {1 << 40}"),
        ({}, (0, 0), "?"),
    ],
)  # fmt: skip
def test_outputs_state_the_bounds_of_their_sizes(dynamic, doubling, stated, ends, words):
    made = describe_rows(doubling, dynamic, dynamic.with_name("stated"), stated)
    printed = run(made, "--folder", str(made), "--describe").stdout
    assert f"output y: float32 [{words}, 4]\n" in printed
    with loader.open_package(made) as model:
        (y,) = model.outputs
        assert (y.shape, y.minimum, y.maximum) == ((-1, 4), (ends[0], 4), (ends[1], 4))
        assert str(y) == f"y: float32 [{words.removesuffix(' by 2')}, 4]"


def test_many_sizes_do_not_grow_the_process(dynamic):
    early, late = measure(dynamic, rows=1 << 16, calls=10000)
    assert late < early + 16


def test_sizes_near_the_largest_do_not_add_up(dynamic):
    """The runtime keeps a block for each size, of 32 MiB here."""
    assert max(measure(dynamic, rows=ROWS, calls=60, order="from the largest")) < 400


def measure(folder, *, rows, calls, order=None):
    """Return MiB in memory at most, in the second and in the last tenth of calls."""
    words = [folder, rows, calls, *([order] if order else [])]
    done = subprocess.run(
        [sys.executable, "-c", CALLS, *map(str, words)], capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return map(float, done.stdout.split())


def test_a_bench_measures_one_size_after_another(dynamic):
    short = ("--folder", str(dynamic), "--bench", "--seconds", "0.02", "--warmup", "0")
    done = run(dynamic, *short, "--size", "x=2,64,4096", "--json")
    assert not done.returncode, done.stderr
    turns = [json.loads(line) for line in done.stdout.splitlines()]
    assert [turn["sizes"] for turn in turns] == [{"x": 2}, {"x": 64}, {"x": 4096}]
    assert all(turn["calls"] > 0 for turn in turns)
    done = run(dynamic, *short, "--size", "x:0=8")
    assert done.stdout.startswith("x:0=8: "), done
    for wrong in ("x=2,", "x=2;4", "x:1=4", "y=2", "x=", "x"):
        done = run(dynamic, *short, "--size", wrong)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), (wrong, done)
        assert "write INPUT=N" in done.stderr
    done = run(dynamic, *short, "--size", "x=2,4", "--size", "x:0=2,4,6")
    assert "it takes 1 or 3 sizes" in done.stderr
