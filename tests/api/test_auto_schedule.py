"""A PrimFunc tuned alone, from a plain program."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, topi

from autopipe import auto_schedule, hardware, load_scheduled
from autopipe.api.hardware import build_conditions
from autopipe.api.scheduled import Scheduled
from autopipe.artifacts.tuning import ContenderResult
from autopipe.compiler.graph import elementary
from autopipe.config.target import Target
from autopipe.errors import ConfigError, ModelError, StoreError, TargetError
from autopipe.measure import build
from autopipe.pipeline.isolate import Late
from autopipe.schedules.policy import PLAIN
from autopipe.schedules.replay import replay_schedule
from tests.schedules.tensors import matmul
from tests.support import here, kept

ROOT = Path(__file__).parents[2]
PROGRAM = """
import autopipe
from tests.schedules.tensors import matmul
found = autopipe.auto_schedule(matmul(24), trials=2, engines=["autotvm"], target={"num_cores": 1})
print(found)
"""


@pytest.fixture(scope="module", autouse=True)
def one_process():
    with kept.shared(sys.modules[auto_schedule.__module__]):
        yield


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return auto_schedule(matmul(), trials=6, store=tmp_path_factory.mktemp("tuned") / "store")


def test_the_winner_was_measured_and_computes_the_same(found):
    timed = [each for each in found.contenders if each.seconds is not None]
    assert (found.engine, found.implementation) in {(c.engine, c.implementation) for c in timed}
    assert found.seconds > 0
    assert sum(each.trials for each in found.contenders) == 6
    assert {"static", "autotvm"} <= {each.engine for each in timed}
    assert found.unchecked is None
    assert found.flops == 2 * 48**3
    target = here.target()
    assert tvm_ffi.structural_equal(found.module, elementary.expand_functions(found.module))
    built = tvm.tirx.build(found.module, target)
    left, right = (np.random.default_rng(i).random((48, 48), "float32") for i in (0, 1))
    out = tvm.runtime.tensor(np.zeros((48, 48), "float32"))
    built["main"](tvm.runtime.tensor(left), tvm.runtime.tensor(right), out)
    np.testing.assert_allclose(out.numpy(), left @ right, rtol=1e-4)


def test_what_is_returned_is_what_was_timed(found):
    """So whoever compiles it has the speed that was reported: `build` makes the trials."""
    for_what = build_conditions(found.target, fast_algorithms=True)
    timed = build.without_weights(
        replay_schedule(found.workload, found.implementation, found.schedule, for_what)
    )
    assert tvm_ffi.structural_equal(elementary.expand_functions(timed), found.module)


def test_a_plain_program_needs_no_main_guard_and_leaves_nothing_behind(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True,
        env={"TMPDIR": str(tmp_path), "HOME": "/nonexistent", "PATH": ""}, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "agrees with the plain loops" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_store_keeps_what_was_measured(tmp_path):
    store = tmp_path / "store"
    first = auto_schedule(matmul(24), trials=2, engines=["autotvm"], store=store)
    again = auto_schedule(matmul(24)["main"], trials=1, engines=["autotvm"], store=store)
    assert sum(each.trials for each in first.contenders) == 2
    assert sum(each.trials for each in again.contenders) == 3


def test_only_the_engines_that_are_named_are_asked():
    only = auto_schedule(matmul(24), trials=3, engines="ansor")
    plain = {by.engine for by in PLAIN}  # where they may be fast enough
    assert {each.engine for each in only.contenders} - plain == {"ansor", "static"}


def test_the_loops_as_lowered_take_part():
    x = te.placeholder((64, 96), name="x")
    y = te.compute((64, 96), lambda i, j: x[(i + 1) % 64, j] + x[i, (j + 1) % 96])
    found = auto_schedule([x, y], trials=2)
    assert {by.engine for by in PLAIN} <= {each.engine for each in found.contenders}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "^trials: Input should be greater than or equal to 1"),
        ({"seconds": -1}, "^seconds: "),
        ({"engines": ["ansr"]}, "'autotvm' or 'ansor'|'ansor' or 'autotvm'"),
        ({"target": {"kind": "metal"}}, "kind: Input should be 'llvm' or 'cuda'"),
        ({"target": "llvm"}, "^target: Input should be"),
        ({"store": 3}, "^store: not a folder: 3"),
        ({"info": {"kind": "injective", "opps": []}}, "opps: Extra inputs are not permitted"),
    ],
)
def test_options_that_can_not_be(options, message):
    with pytest.raises(ConfigError, match=message):
        auto_schedule(matmul(), **{"trials": 1} | options)


def test_modules_that_can_not_be_tuned():
    two = tvm.IRModule({"one": matmul()["main"], "two": matmul(8)["main"]})
    with pytest.raises(ModelError, match="this one has 2: one, two"):
        auto_schedule(two)
    with pytest.raises(ModelError, match="this one has 0"):
        auto_schedule(tvm.IRModule())
    n = te.var("n")
    x = te.placeholder((n,), "float32", name="x")
    dynamic = te.create_prim_func([x, te.compute((n,), lambda i: x[i] + 1.0, name="out")])
    with pytest.raises(ModelError, match="a dimension is symbolic"):
        auto_schedule(dynamic)


CARRIED = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((4, 9), "float32"), y: T.Buffer((4, 9), "float32")):
    for i, j in T.grid(4, 9):
        with T.sblock("running"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = T.max(y[vi, T.max(vj - 1, 0)], x[vi, vj])
"""


def test_a_block_that_carries_something_on_has_to_say_so():
    running = tvm.script.from_source(CARRIED)
    with pytest.raises(ModelError, match="main: block running reads what it writes"):
        auto_schedule(running)


def test_what_nothing_improves_comes_back_as_it_is_and_says_so(tmp_path):
    x = te.placeholder((3, 20), "float32", name="x")
    declared = [x, topi.sort(x, axis=1)]
    found = auto_schedule(declared)
    given = np.random.default_rng(0).random((3, 20), "float32")
    np.testing.assert_array_equal(found(given)[0], np.sort(given, 1))
    assert found.engine == "none"
    assert str(found).endswith("as it is: no engine changes it, not measured")
    found.save(tmp_path / "found.json")
    assert load_scheduled(tmp_path / "found.json", declared).engine == "none"


def test_a_prefix_sum_is_scheduled_and_kept(tmp_path):
    x = te.placeholder((3, 20), "float32", name="x")
    declared = [x, topi.cumsum(x, axis=1)]
    found = auto_schedule(declared)
    given = np.random.default_rng(0).random((3, 20), "float32")
    np.testing.assert_allclose(found(given)[0], np.cumsum(given, 1), rtol=1e-5)
    assert "by_hand" in found.schedule
    found.save(tmp_path / "found.json")
    assert load_scheduled(tmp_path / "found.json", declared).schedule == found.schedule


def test_what_only_our_builds_compile_is_not_scheduled():
    target = Target(mcpu="sapphirerapids", num_cores=2)
    features = build_conditions(target, fast_algorithms=True).hardware.features
    assert not {"avx512bf16", "amx-tile"} & features


def test_what_can_not_run_here_is_not_tuned(tmp_path):
    target = {"mcpu": "pwr9", "mtriple": "powerpc64le-linux-gnu"}
    with pytest.raises(TargetError, match="this machine is"):
        auto_schedule(matmul(), trials=1, target=target)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="not a directory"):
        auto_schedule(matmul(), trials=1, store=tmp_path / "file")


def test_without_time_to_measure_anything_it_is_what_it_is_at_once():
    found = auto_schedule(matmul(), seconds=1e-9)
    assert (found.engine, found.seconds, found.ended) == ("static", None, "the time is spent")
    assert found.unchecked == "nothing was run"


def test_what_was_measured_and_checked_is_not_lost_when_the_time_ends(monkeypatch, tmp_path):
    ask = kept.Borrowed.call

    def call(zygote, entry, argument, *given):
        """Answer only when nobody waits for it any more."""
        if "folder" not in argument:
            return ask(zygote, entry, argument, *given)
        log, emit, seconds = given
        assert 0 < seconds < 600
        ask(zygote, entry, argument, log, emit)
        raise Late("too late")

    monkeypatch.setattr(kept.Borrowed, "call", call)
    found = auto_schedule(matmul(), trials=4, seconds=600, store=tmp_path / "store")
    assert found.ended == "the time is spent"
    assert found.unchecked is None
    by = {(each.engine, each.implementation): each.seconds for each in found.contenders}
    own = by[found.engine, found.implementation]
    # of the trials only those who took part in the run-off are checked: a fast one may not be
    assert found.seconds is not None
    assert own is not None
    assert found.seconds >= own
    assert sum(each.trials for each in found.contenders) == 4


def contender(*values):
    return ContenderResult(**dict(zip(ContenderResult.model_fields, values, strict=True)))


def test_the_table():
    contenders = (
        contender("autotvm", "winograd4", 24, 1, 123.44e-6, None),
        contender("static", "direct", 1, 0, 104e-9, None),
        contender("ansor", "direct", 0, 0, None, "no design space"),
    )
    one = Scheduled(
        workload=matmul(), module=matmul(), engine="autotvm", implementation="winograd4",
        schedule="{}", target=Target(), fast_algorithms=True, flops=1e6, seconds=123.44e-6,
        unchecked=None, ended="ended", contenders=contenders,
    )  # fmt: skip
    assert str(one).splitlines() == [
        "engine   implementation  trials  failed      best",
        "autotvm  winograd4           24       1  123.4 us",
        "static   direct               1       0  104.0 ns",
        "ansor    direct               0       0         -",
        "",
        "autotvm on winograd4: 123.4 us, 8.1 GFLOPS; agrees with the plain loops",
    ]


def test_what_no_schedule_puts_into_threads_of_a_gpu_is_refused():
    """Such loops would run on the host, and read the memory of the GPU."""
    x = te.placeholder((64, 300), name="x")
    goal = hardware(kind="cuda", arch="sm_90")
    with pytest.raises(ModelError, match="no schedule makes a kernel for cuda of it: some of its"):
        auto_schedule([x, topi.cumsum(x, axis=1)], target=goal)
    with pytest.raises(ModelError, match="it calls the runtime on the host"):
        auto_schedule([x, topi.argsort(x, axis=1)], target=goal)
    made = auto_schedule([x, topi.sum(x, axis=1)], target=goal)
    assert "threadIdx.x" in made.module.script()
