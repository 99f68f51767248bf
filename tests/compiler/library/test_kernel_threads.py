"""Which threads run the kernels of a model, and when they end."""

import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from autopipe.artifacts.library import BuiltLibrary
from autopipe.artifacts.signature import Port, Signature
from autopipe.compiler.library import kernel_threads, runtime
from autopipe.compiler.library.kernel_threads import KernelThreads
from autopipe.compiler.library.loaded_model import LoadedModel
from autopipe.compiler.library.model_instances import ModelInstances
from autopipe.compiler.library.runtime import _load_runtime, load_artifact, load_model
from autopipe.errors import ConfigError
from tests.compiler.library.parallel import save_parallel

PORT = {"shape": (2,), "dtype": "int64"}
SIGNATURE = Signature(
    inputs=(Port(name="x", **PORT),), outputs=(Port(name="y", **PORT),), weights=(), threads=2
)
SPIN = "TVM_THREAD_POOL_SPIN_COUNT"

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="not enough cores")


@pytest.fixture(autouse=True)
def _runtime():
    _load_runtime()


def count_tasks():
    return len(list(Path("/proc/self/task").iterdir()))


def called_from(threads, call):
    """Make a call in each of so many fresh threads, all of which live until the last has ended."""
    done = threading.Barrier(threads + 1)

    def run():
        call()
        done.wait()
        done.wait()

    callers = [threading.Thread(target=run) for _ in range(threads)]
    for caller in callers:
        caller.start()
    done.wait()
    counted = count_tasks()
    done.wait()
    for caller in callers:
        caller.join()
    return counted - threads


def in_process(function, *arguments, **environment):
    """Run a function of this file in a fresh interpreter; return what it printed."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path.cwd())!r}); "
        f"from {__name__} import {function.__name__}; {function.__name__}(*sys.argv[1:])"
    )
    command = [sys.executable, "-c", code, *map(str, arguments)]
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300,
        env=os.environ | environment,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def count_threads(folder):
    """Write the number of threads before a model was called, and while many callers live."""
    model = load_artifact(Path(folder))
    inputs = {"x": np.ones(1 << 20, "float32")}
    before = count_tasks()
    during = called_from(20, lambda: model(inputs))
    sys.stdout.write(f"{before} {during}")


@pytest.mark.parametrize(("threads", "more"), [(1, 0), (2, 3)])
def test_many_threads_that_call_a_model_share_one_pool(tmp_path, threads, more):
    """With two threads: the first caller's other thread, the thread that calls, and its other."""
    save_parallel(tmp_path, threads)
    before, during = map(int, in_process(count_threads, tmp_path))
    assert during - before <= more


def call_in_fork(folder):
    """Call a model, and again in a child that was forked thereafter."""
    model = load_artifact(Path(folder))
    inputs = {"x": np.ones(1 << 20, "float32")}
    expected = model(inputs)["y"]
    child = os.fork()
    if child == 0:
        signal.alarm(100)
        os._exit(0 if np.array_equal(model(inputs)["y"], expected) else 1)
    sys.stdout.write(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))


def test_a_model_is_called_in_a_child_that_was_forked(tmp_path):
    save_parallel(tmp_path, 2)
    assert in_process(call_in_fork, tmp_path) == ["0"]


def call_only_in_fork(folder):
    """Call a model in a child that was forked once its parent had a pool."""
    model = load_artifact(Path(folder))
    kernel_threads.use_threads(2)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        model({"x": np.ones(1 << 20, "float32")})
        os._exit(0)
    sys.stdout.write(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_fork_does_not_depend_on_how_fast_threads_start(tmp_path):
    save_parallel(tmp_path, 2)
    late = tmp_path / "late.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", late, "tests/support/late.c"], check=True)
    assert in_process(call_only_in_fork, tmp_path, LD_PRELOAD=str(late)) == ["0"]


def model_of(main, threads):
    return LoadedModel(SIGNATURE, {"main": main}, [], threads)


@pytest.mark.parametrize("count", [1, 2])
def test_results_and_errors_reach_the_thread_that_calls(count):
    def main(x):
        if x[0] == 13:
            raise ValueError("unlucky")
        return x

    class Echo:
        def run(self, seed):
            if seed == 13:
                raise ValueError("unlucky")
            return seed

    threads, echo = KernelThreads(count), Echo()

    def call(seed):
        try:
            return threads.run(echo.run, seed)
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(call, range(20)))
    assert results == ["unlucky" if seed == 13 else seed for seed in range(20)]


def ours():
    return [thread for thread in threading.enumerate() if thread.name == "autopipe"]


@pytest.mark.parametrize("end", ["close", "drop"])
def test_the_thread_that_calls_ends_with_the_model(end):
    threads = KernelThreads(2)
    known = ours()
    called_from(2, lambda: threads.run(lambda: None))
    (new,) = set(ours()) - set(known)
    if end == "close":
        threads.close()
    else:
        del threads
        gc.collect()
    new.join(timeout=60)
    assert not new.is_alive()


def test_a_closed_model_is_not_called():
    model = model_of(lambda x: x, KernelThreads(2))
    model.close()
    with pytest.raises(ConfigError, match="the model is closed"):
        model({"x": np.array([1, 2])})


def test_a_thread_with_a_smaller_pool_hands_its_calls_over():
    """TVM makes the pool of a thread once."""
    threads: list[object] = []

    def call():
        for count in (1, 2, 1):
            KernelThreads(count).run(lambda: threads.append(threading.current_thread()))

    caller = threading.Thread(target=call)
    caller.start()
    caller.join()
    assert [thread is caller for thread in threads] == [True, False, True]


def test_instances_run_at_the_same_time():
    both = threading.Barrier(2, timeout=60)

    def main(x):
        both.wait()
        return x

    model = ModelInstances([model_of(main, KernelThreads(1)) for _ in range(2)])
    with ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda seed: model({"x": np.array([seed, seed])})["y"], range(10))
    assert [result.tolist() for result in results] == [[seed, seed] for seed in range(10)]


def test_instances_share_weights_and_keep_states_apart(library, monkeypatch):
    read = []
    weights = runtime._read_weights

    def read_weights(*arguments):
        read.append(arguments)
        return weights(*arguments)

    monkeypatch.setattr(runtime, "_read_weights", read_weights)
    model = load_model(library, BuiltLibrary.read(library).signature, threads=1, instances=3)
    assert len(read) == 1
    assert model.signature.threads == 1
    one = load_artifact(library)
    generator = np.random.default_rng(0)
    given = [
        {"data/x": generator.standard_normal((4, 8)).astype("float32"), "ids": np.arange(4)}
        for _ in range(24)
    ]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda inputs: model(inputs)["scores"], given))
    for inputs, scores in zip(given, found, strict=True):
        np.testing.assert_array_equal(scores, one(inputs)["scores"])


@pytest.mark.parametrize(("given", "spin"), [({}, "5000"), ({SPIN: "7"}, "7")])
def test_threads_spin_for_a_short_time_unless_the_user_gives_another(given, spin, monkeypatch):
    monkeypatch.setattr("os.environ", given)
    kernel_threads.shorten_spin()
    assert given == {SPIN: spin}
