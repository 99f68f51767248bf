import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from autopipe.compiler.runtime import ALIGNMENT, Model, aligned, load, load_artifact
from autopipe.errors import ConfigError, StageError
from tests import small_build


@pytest.fixture(scope="module")
def loaded(library: Path) -> Model:
    return load_artifact(library)


def arrays(seed=0):
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((4, 8)).astype("float32")
    return {"data/x": x, "ids": generator.integers(0, 5, 4)}


def test_computes_the_model(loaded):
    inputs = arrays()
    scores, best = small_build.expected(inputs["data/x"], inputs["ids"])
    outputs = loaded(inputs)
    assert list(outputs) == ["scores", "best"]
    np.testing.assert_allclose(outputs["scores"], scores, rtol=1e-5)
    np.testing.assert_array_equal(outputs["best"], best)


def test_order_strides_and_alignment_of_inputs_do_not_matter(loaded):
    inputs = arrays()
    odd = np.empty(4 * 8 * 4 + 1, np.uint8)[1:].view("float32").reshape(4, 8)
    odd[:] = inputs["data/x"]
    expected = loaded(inputs)["scores"]
    strided = np.asfortranarray(inputs["data/x"])
    for x in (odd, strided):
        outputs = loaded({"ids": inputs["ids"], "data/x": x})
        np.testing.assert_array_equal(outputs["scores"], expected)


def test_outputs_belong_to_the_caller(loaded):
    first = loaded(arrays(0))["scores"]
    copy = first.copy()
    loaded(arrays(1))
    np.testing.assert_array_equal(first, copy)
    first[:] = 0  # writable


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data/X": 1}, "the model has no input 'data/X'; did you mean 'data/x'?"),
        ({"else": 1}, "the model has no input 'else'; it takes data/x, ids"),
        ({"ids": None}, r"input 'ids' int64 \[4\] is missing"),
        ({"ids": np.zeros(4, "int32")}, r"input 'ids' is int32 \[4\]; the model takes int64 \[4\]"),
        ({"data/x": np.zeros(8, "float32")}, r"is float32 \[8\]; the model takes float32 \[4, 8\]"),
        ({"data/x": np.zeros((4, 8), ">f4")}, "is >f4"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_in_words(loaded, change, message):
    inputs = {name: value for name, value in (arrays() | change).items() if value is not None}
    with pytest.raises(ConfigError, match=message):
        loaded(inputs)


def test_a_file_that_is_no_library_is_refused(tmp_path, library, loaded):
    broken = tmp_path / "lib.so"
    broken.write_bytes(b"no library")
    with pytest.raises(StageError, match=r"lib\.so can not be loaded"):
        load(broken, library / "weights.safetensors", loaded.signature)


def test_missing_weights_are_refused(tmp_path, library, loaded):
    (tmp_path / "weights").write_bytes(b"")
    with pytest.raises(StageError, match="weights can not be read"):
        load(library / "lib.so", tmp_path / "weights", loaded.signature)


def test_calls_from_several_threads_take_turns(loaded):
    expected = [loaded(arrays(seed))["scores"] for seed in range(4)]

    def call(seed):
        return [np.array_equal(loaded(arrays(seed))["scores"], expected[seed]) for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        assert all(all(right) for right in pool.map(call, range(4)))


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3)])
@pytest.mark.parametrize("dtype", ["bool", "float16", "int64"])
def test_aligned_arrays_start_where_tvm_needs_it(shape, dtype):
    array = aligned(shape, dtype)
    assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
    assert array.size == 0 or array.ctypes.data % ALIGNMENT == 0
    array[...] = 1


_BUSY_THREADS = """
import os, sys, time
from pathlib import Path
import numpy as np
from autopipe.compiler.runtime import load_artifact

def seconds(task):
    return int(Path("/proc/self/task", task, "schedstat").read_text().split()[0]) / 1e9

model = load_artifact(Path(sys.argv[1]))
inputs = {"x": np.ones(1 << 20, "float32")}
model(inputs)
time.sleep(0.3)  # new threads of the pool spin for a while
before = {task: seconds(task) for task in os.listdir("/proc/self/task")}
for _ in range(10):
    model(inputs)
used = [seconds(task) - start for task, start in before.items()]
assert "tvm" not in sys.modules, "the compiler was imported"
print(sum(time > 0.1 * max(used) for time in used))
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_run_on_the_threads_of_the_signature(tmp_path, threads):
    if len(os.sched_getaffinity(0)) < threads:
        pytest.skip("not enough cores")
    _save_parallel(tmp_path, threads)
    command = [sys.executable, "-c", _BUSY_THREADS, str(tmp_path)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.stdout.strip() == str(threads), run.stderr


def _save_parallel(folder, threads):
    import json

    import tvm
    from safetensors.numpy import save_file

    source = """
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def slow(A: T.Buffer((1048576,), "float32"), B: T.Buffer((1048576,), "float32")):
        for i in T.parallel(16):
            for j in range(65536):
                B[i * 65536 + j] = T.exp(T.tanh(T.sin(A[i * 65536 + j])))

    @R.function
    def main(x: R.Tensor((1048576,), "float32")):
        cls = Module
        y = R.call_tir(cls.slow, (x,), R.Tensor((1048576,), "float32"))
        return y
"""
    target = tvm.target.Target({"kind": "llvm", "num-cores": 2})
    built = tvm.compile(tvm.script.from_source(source), target=target)
    built.export_library(str(folder / "lib.so"))
    save_file({}, folder / "weights.safetensors")
    port = {"shape": [1048576], "dtype": "float32"}
    document = {
        "inputs": [{"name": "x", **port}],
        "outputs": [{"name": "y", **port}],
        "weights": [],
        "threads": threads,
    }
    (folder / "library.json").write_text(json.dumps(document))
