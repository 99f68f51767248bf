import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from autopipe.artifacts.library import BuiltLibrary
from autopipe.artifacts.signature import Port, Signature
from autopipe.compiler.library.kernel_threads import KernelThreads
from autopipe.compiler.library.runtime import (
    LoadedModel,
    Model,
    allocate_aligned,
    load_artifact,
    load_model,
)
from autopipe.errors import ConfigError, StageError
from autopipe.runtime.weights import ALIGNMENT
from tests.compiler.library.parallel import save_parallel
from tests.support import small_build
from tests.support.table import each_row


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


def test_inputs_may_be_given_in_order(loaded):
    inputs = arrays()
    expected = loaded(inputs)["scores"]
    for given in (list(inputs.values()), tuple(inputs.values())):
        np.testing.assert_array_equal(loaded(given)["scores"], expected)
    for wrong in (inputs["ids"], [inputs["ids"]]):
        with pytest.raises(ConfigError, match=r"1 inputs are given; the model takes 2: 'data/x' f"):
            loaded(wrong)


def test_a_model_shows_what_it_takes(loaded):
    assert repr(loaded) == (
        "LoadedModel(data/x: float32 [4, 8], ids: int64 [4])"
        " -> (scores: float32 [4, 8], best: int64 [4])"
    )
    assert "<td>data/x</td><td>float32 [4, 8]</td>" in loaded._repr_html_()


def test_hostile_names_are_escaped_in_html(echo):
    port = echo.signature.inputs[0].model_copy(update={"name": "<img src=x onerror=1>\u202e"})
    echo.signature = echo.signature.model_copy(update={"inputs": (port,)})
    assert "&lt;img src=x onerror=1&gt;\\u202e" in echo._repr_html_()


def test_the_only_input_may_be_given_alone(echo):
    one = np.array([3, 4])
    np.testing.assert_array_equal(echo(one)["y"], echo({"x": one})["y"])


def test_order_strides_and_alignment_of_inputs_do_not_matter(loaded):
    inputs = arrays()
    odd = np.empty(4 * 8 * 4 + 1, np.uint8)[1:].view("float32").reshape(4, 8)
    odd[:] = inputs["data/x"]
    expected = loaded(inputs)["scores"]
    strided = np.asfortranarray(inputs["data/x"])
    for x in (odd, strided):
        outputs = loaded({"ids": inputs["ids"], "data/x": x})
        np.testing.assert_array_equal(outputs["scores"], expected)


@pytest.fixture
def echo(loaded):
    """A model that gives back the memory it is called with, after a while."""
    port = {"shape": (2,), "dtype": "int64"}
    signature = Signature(
        inputs=(Port(name="x", **port),), outputs=(Port(name="y", **port),), weights=(), threads=1
    )

    def main(x):
        time.sleep(0.01)
        return x

    return LoadedModel(signature, {"main": main}, [], KernelThreads(1))


def test_outputs_belong_to_the_caller(echo):
    first = echo({"x": np.array([1, 2])})["y"]
    echo({"x": np.array([3, 4])})
    assert first.tolist() == [1, 2]
    first[:] = 0  # writable


def test_calls_from_several_threads_take_turns(echo):
    with ThreadPoolExecutor(4) as pool:
        results = pool.map(lambda seed: echo({"x": np.array([seed, seed])})["y"], range(8))
    assert [result.tolist() for result in results] == [[seed, seed] for seed in range(8)]


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
    with pytest.raises(StageError, match=r"lib\.so cannot be loaded"):
        load_model(tmp_path, loaded.signature)


def test_missing_weights_are_refused(tmp_path, library, loaded):
    shutil.copy(library / "lib.so", tmp_path)
    (tmp_path / "weights.safetensors").write_bytes(b"")
    with pytest.raises(StageError, match=r"weights\.safetensors cannot be read"):
        load_model(tmp_path, loaded.signature)


def halved(library, folder, dtype):
    """Load a copy of a library whose weights are stored in this type, and said to be halves."""
    shutil.copytree(library, folder, dirs_exist_ok=True)
    stored = load_file(folder / "weights.safetensors")
    kept = {name: array.astype(dtype) for name, array in stored.items()}
    save_file(kept, folder / "weights.safetensors")
    signature = BuiltLibrary.read(folder).signature
    return load_model(folder, signature.model_copy(update={"halves": tuple(kept)}))


def test_weights_in_float16_are_widened(tmp_path, library):
    inputs = arrays()
    scores, _ = small_build.expected(inputs["data/x"], inputs["ids"])
    outputs = halved(library, tmp_path, "float16")(inputs)
    np.testing.assert_allclose(outputs["scores"], scores, rtol=1e-2, atol=1e-2)


def test_halves_that_are_none_are_refused(tmp_path, library):
    with pytest.raises(StageError, match=r"is float32 instead of float16"):
        halved(library, tmp_path, "float32")


@each_row("shape, dtype", product([(), (0, 3), (5,), (2, 3)], ["bool", "float16", "int64"]))
def test_aligned_arrays_start_where_tvm_needs_it(shape, dtype):
    array = allocate_aligned(shape, dtype)
    assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
    assert array.size == 0 or array.ctypes.data % ALIGNMENT == 0
    array[...] = 1


_BUSY_THREADS = """
import os, sys, time
from pathlib import Path
import numpy as np
from autopipe.compiler.library.runtime import load_artifact

def seconds():
    tasks = Path("/proc/self/task").iterdir()
    return {task.name: int((task / "schedstat").read_text().split()[0]) for task in tasks}

model = load_artifact(Path(sys.argv[1]))
inputs = {"x": np.ones(1 << 20, "float32")}
model(inputs)
deadline = time.monotonic() + 30
while True:  # new threads of the pool spin for a while
    before = seconds()
    time.sleep(0.1)
    after = seconds()
    moved = [task for task in after if after[task] != before.get(task) and int(task) != os.getpid()]
    if not moved or time.monotonic() > deadline:
        break
before = seconds()
for _ in range(10):
    model(inputs)
after = seconds()
used = [after[task] - before[task] for task in before]
assert "tvm" not in sys.modules, "the compiler was imported"
print(sum(time > 0.1 * max(used) for time in used))
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_run_on_the_threads_of_the_signature(tmp_path, threads):
    if len(os.sched_getaffinity(0)) < threads:
        pytest.skip("not enough cores")
    save_parallel(tmp_path, threads)
    command = [sys.executable, "-c", _BUSY_THREADS, str(tmp_path)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.stdout.strip() == str(threads), run.stderr
