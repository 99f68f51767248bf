"""Before each call that is timed, the caches are brought into the state that a model leaves."""

import ast
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tvm
from tvm import te

from autopipe.config.tuning import Measure
from autopipe.measure import build, timing
from autopipe.measure.caches import ModelCaches
from autopipe.measure.local import Local
from autopipe.measure.measurement import Measurement, Repeatable, Surroundings
from tests.schedules.tasks import TARGET

ROOT = Path(__file__).parents[2]
CORES = 2
MOST = 1 << 20


@pytest.fixture(scope="module")
def caches():
    return ModelCaches.of(TARGET, CORES, MOST)


def tensor(values):
    return tvm.runtime.tensor(values)


def total():
    """A kernel with an input, a weight and an output, and its module."""
    x, w = te.placeholder((3, 5000), name="x"), te.placeholder((5000,), name="w")
    i = te.reduce_axis((0, 5000))
    y = te.compute((3,), lambda row: te.sum(x[row, i] * w[i], [i]))
    return tvm.IRModule({"main": te.create_prim_func([x, w, y])})


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1023,), (1025, 3), (2049, 8), (9, 4096)])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "float64"])
def test_what_is_written_is_what_was_there(caches, shape, dtype):
    values = np.asarray(np.random.default_rng(0).integers(-9, 9, shape)).astype(dtype)
    given = tensor(values)
    caches.before([given], Surroundings(MOST, (0,)))(given)
    np.testing.assert_array_equal(given.numpy(), values)


@pytest.mark.parametrize("touched", [0, 64, 1 << 16, MOST, 10 * MOST])
def test_as_much_as_the_model_touches_is_read_and_never_more_than_there_is(caches, touched):
    before = caches._sums.numpy().sum()
    caches.before([], Surroundings(touched))()
    lines = min(touched, MOST) // 64 // CORES * CORES
    assert caches._sums.numpy().sum() - before == lines


def test_only_activations_are_written(caches):
    written = []

    class Watched:
        shape, dtype = (4,), "float32"

        def __init__(self, name):
            self.name = name

        def _create_view(self, *_):
            written.append(self.name)
            return tensor(np.zeros(4, np.int32))

    caches.before([Watched("x"), Watched("w"), Watched("y")], Surroundings(0, (0,)))()
    assert written == ["x"]


def test_a_repeat_is_the_median_of_single_calls_each_of_them_prepared():
    kernel = build.build_kernel(total(), TARGET)
    calls = []

    def caches(tensors):
        assert len(tensors) == 3
        return lambda *_: calls.append(1)

    limits = Measure(repeat=5, min_repeat=1e-6)
    call = timing.TimedCall.of(kernel, tvm.cpu())
    found = timing.time_call(call, limits, float("inf"), caches)
    assert len(found.seconds) == 5
    assert len(calls) == 5  # a call takes longer than a repeat should
    limits = Measure(repeat=2, min_repeat=5.0)
    timing.time_call(call, limits, float("inf"), caches)
    assert len(calls) == 5 + 2 * timing._MAX_SINGLE_CALLS


@pytest.mark.parametrize(
    ("single", "calls", "found"),
    [
        ([3.0, 2.0], 2, Measurement((2.0,), cut=True)),
        ([3.0, 1.0, 2.0], 3, Measurement((3.0, 1.0, 2.0))),
        ([1.0, 3.0, 3.0], 3, Measurement((1.0, 3.0, 3.0))),
    ],
)
def test_a_trial_ends_after_two_single_calls_that_can_not_win(monkeypatch, single, calls, found):
    """Such calls find cold caches, so they take longer than the warm ones before them."""
    monkeypatch.setattr(timing.TimedCall, "time_once", lambda _: 1e-3)
    times = iter(single)

    def evaluator(*_, repeat, **__):
        return lambda *_: SimpleNamespace(results=[next(times) for _ in range(repeat)])

    module = build.without_weights(total())
    library = SimpleNamespace(time_evaluator=evaluator)
    kernel = build.Kernel(library, module)  # type: ignore[arg-type]
    limits = Measure(repeat=3, min_repeat=1e-9)
    call = timing.TimedCall.of(kernel, tvm.cpu())
    timed = timing.time_call(call, limits, 1.5 / timing._SLOWER, lambda _: lambda *_: None)
    assert timed == found
    assert len(single) - len(list(times)) == calls


@pytest.mark.parametrize(
    ("sizes", "displacing"),
    [({"l2": 1 << 14, "l3": 1 << 16}, 4 * (2 * (1 << 14) + (1 << 16))), ({}, MOST)],
)
def test_no_more_is_read_than_displaces_what_the_caches_hold(monkeypatch, sizes, displacing):
    monkeypatch.setattr("autopipe.measure.caches.LARGEST", MOST)
    monkeypatch.setattr("autopipe.measure.caches.read_sizes", lambda _: sizes)
    assert int(ModelCaches.of(TARGET, CORES, 1 << 45)._memory.shape[0]) == displacing // 4


def test_a_child_is_timed_in_the_surroundings_of_its_task():
    code = "from tests.measure.test_caches import children; print(children())"
    done = subprocess.run(  # a fork lacks the threads that other tests have started here
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    first, second, third = ast.literal_eval(done.stdout)
    assert (first, second) == (None, None)
    assert "IndexError" in third


def children():
    """How trials end: of a kernel alone, one in a model, and one whose arguments are not known."""
    local = Local(TARGET, CORES, Measure(repeat=2, min_repeat=1e-3), touched_bytes=MOST)
    around = (None, Surroundings(MOST, (0,)), Surroundings(MOST, (9,)))
    candidates = [
        Repeatable("sum", "direct", f"[{at}]", total, one) for at, one in enumerate(around)
    ]
    found = [measurement.error for measurement in local.measure(candidates, same_task=False)]
    local.close()
    return found


def test_no_order_makes_it_take_more_memory_than_any_cache_has(monkeypatch):
    monkeypatch.setattr("autopipe.measure.caches.LARGEST", MOST)
    assert int(ModelCaches.of(TARGET, CORES, 1 << 45)._memory.shape[0]) == MOST // 4
