"""A call ends between two kernels once its limit is reached or it is cancelled."""

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from safetensors.numpy import save_file

from autopipe.artifacts.signature import Port, Signature
from autopipe.compiler.library.kernel_threads import KernelThreads
from autopipe.compiler.library.loaded_model import LoadedModel
from autopipe.compiler.library.runtime import load_model
from autopipe.errors import CallLimitError, ConfigError

SHAPE = {"shape": (4,), "dtype": "float32"}
SIGNATURE = Signature(
    inputs=(Port(name="x", **SHAPE),), outputs=(Port(name="y", **SHAPE),), weights=(), threads=1
)
X = np.arange(4, dtype="float32")
STEPS = 5
SOURCE = """
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def double(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i] * T.float32(2)

    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        cls = Module
"""


class Ticks:
    """What a model does between two kernels."""

    def __init__(self):
        self.count = 0
        self.act = lambda count: None

    def __call__(self, *_):
        self.count += 1
        self.act(self.count)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import tvm

    lines, last = [], "x"
    for at in range(STEPS):
        lines.append(f'_{at} = R.call_packed("tests.tick", {last}, ty_args=R.Tuple())')
        lines.append(f'y{at} = R.call_tir(cls.double, ({last},), R.Tensor((4,), "float32"))')
        last = f"y{at}"
    source = SOURCE + "".join(f"        {line}\n" for line in [*lines, f"return {last}"])
    out = tmp_path_factory.mktemp("steps")
    tvm.compile(tvm.script.from_source(source), target="llvm").export_library(str(out / "lib.so"))
    save_file({}, out / "weights.safetensors")
    return out


@pytest.fixture
def ticks():
    import tvm_ffi

    counted = Ticks()
    tvm_ffi.register_global_func("tests.tick", counted, override=True)
    return counted


@pytest.fixture
def model(folder, ticks):
    return load_model(folder, SIGNATURE)


def is_right(model, ticks, **options):
    ticks.act, ticks.count = lambda count: None, 0
    outputs = model({"x": X}, **options)
    return outputs["y"].tolist() == (X * 2**STEPS).tolist() and ticks.count == STEPS


@pytest.mark.parametrize("limit", [30, math.inf])
def test_a_cancelled_call_runs_no_further_kernel(model, ticks, limit):
    for _ in range(50):  # what an ended call leaves does not add up
        ticks.count, ticks.act = 0, lambda count: model.cancel() if count == 3 else None
        with pytest.raises(CallLimitError, match=r"^the call was cancelled$"):
            model({"x": X}, limit=limit)
        assert ticks.count == 3
    assert is_right(model, ticks, limit=limit)
    ticks.act = lambda count: model.cancel()
    assert is_right(model, ticks), "a call without a limit is not watched"


def test_a_call_ends_once_its_time_is_over(model, ticks):
    ticks.act = lambda count: time.sleep(0.03)
    with pytest.raises(CallLimitError, match=r"did not end within its limit of 0\.02 s") as raised:
        model({"x": X}, limit=0.02)
    assert isinstance(raised.value, TimeoutError)
    assert ticks.count <= 1
    assert is_right(model, ticks)


@pytest.mark.parametrize("instances", [1, 2])
def test_the_limit_counts_waiting(folder, ticks, instances):
    model = load_model(folder, SIGNATURE, instances=instances)
    runs, go_on = threading.Semaphore(0), threading.Event()

    def wait(count):
        runs.release()
        go_on.wait(60)

    ticks.act = wait
    with ThreadPoolExecutor() as pool:
        calls = [pool.submit(model, {"x": X}) for _ in range(instances)]
        for _ in calls:
            runs.acquire()
        for limit in (0, 0.01):
            with pytest.raises(CallLimitError, match="within its limit"):
                model({"x": X}, limit=limit)
        waiting = pool.submit(model, {"x": X}, limit=60)
        while not model._limits._running:
            time.sleep(0.001)
        model.cancel()
        go_on.set()
        with pytest.raises(CallLimitError, match="cancelled"):
            waiting.result()
        assert all(call.result()["y"].tolist() == (X * 2**STEPS).tolist() for call in calls)
    assert is_right(model, ticks, limit=60)


def test_states_stay_when_a_call_of_a_stream_ends(model, ticks):
    stream = model.stream({"x": "y"}, {"x": X})
    stream({})
    ticks.act = lambda count: model.cancel()
    with pytest.raises(CallLimitError):
        stream({}, limit=60)
    assert stream.states["x"].tolist() == (X * 2**STEPS).tolist()
    ticks.act = lambda count: None
    stream({}, limit=60)
    assert stream.states["x"].tolist() == (X * 2 ** (2 * STEPS)).tolist()


def test_an_error_of_the_model_is_not_one_of_the_limit(model, ticks):
    def fail(count):
        raise RuntimeError("out of paper")

    ticks.act = fail
    with pytest.raises(Exception, match="out of paper") as raised:
        model({"x": X}, limit=60)
    assert not isinstance(raised.value, CallLimitError)


@pytest.mark.parametrize("limit", [-1, math.nan, "1", True])
def test_a_limit_that_is_no_duration_is_refused(model, limit):
    with pytest.raises(ConfigError, match=r"limit is .*; it takes seconds from 0"):
        model({"x": X}, limit=limit)


def test_outputs_are_written_into_arrays_that_are_given():
    y = Port(name="y", **SHAPE)
    signature = SIGNATURE.model_copy(update={"outputs": (y, y.model_copy(update={"name": "z"}))})
    model = LoadedModel(signature, {"main": lambda x: [x, x]}, [], KernelThreads(1))
    given = np.empty(4, "float32")
    outputs = model({"x": X}, outputs={"z": given})
    assert list(outputs) == ["y", "z"]
    assert outputs["z"] is given
    assert given.tolist() == X.tolist()
    assert not np.shares_memory(outputs["y"], given)
    stream = model.stream({"x": "y"}, {"x": X + 1})
    assert stream({}, outputs={"z": given}).keys() == {"z"}
    assert given.tolist() == (X + 1).tolist()
    with pytest.raises(ConfigError, match="the model has no output 'y'; it returns z"):
        stream({}, outputs={"y": given})


def read_only():
    array = np.empty(4, "float32")
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [
        ({"y1": np.empty(4, "float32")}, "the model has no output 'y1'; did you mean 'y'"),
        ({"y": [0.0] * 4}, "the array for output 'y' is a list"),
        ({"y": np.empty(4, "float64")}, r"is float64 \[4\]; the model returns float32 \[4\]"),
        ({"y": np.empty(4, ">f4")}, r"is >f4 \[4\]"),
        ({"y": np.empty((4, 1), "float32")}, r"is float32 \[4, 1\]"),
        ({"y": np.empty(5, "float32")}, r"is float32 \[5\]"),
        ({"y": np.empty(8, "float32")[::2]}, "read-only or not contiguous"),
        ({"y": read_only()}, "read-only or not contiguous"),
    ],
)
def test_an_array_that_takes_no_output_is_refused_before_the_call(model, ticks, outputs, reason):
    with pytest.raises(ConfigError, match=reason):
        model({"x": X}, outputs=outputs)
    assert ticks.count == 0
