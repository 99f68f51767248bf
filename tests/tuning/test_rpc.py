"""Devices behind a real tracker on loopback: timed, checked, and lost in every way."""

import math
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
import tvm
from tvm import te
from tvm.script import tirx as T  # noqa: N812 - as everybody calls it

from autopipe.config.tuning import Measure, Reach
from autopipe.environment.facet import Facet
from autopipe.environment.toolchain import find_architecture
from autopipe.errors import SetupError
from autopipe.measure import devices
from autopipe.measure.measurement import Repeatable
from autopipe.measure.tracker import Address, Tracker
from autopipe.measure.turn import Turn
from autopipe.safety.job import Piece
from autopipe.safety.verdict import Checked, Finding
from autopipe.schedules.conditions import Conditions
from autopipe.tuning.runners import open_runner
from autopipe.tuning.runners.runner import Wanted
from tests.support import here
from tests.support.rpc_farm import rpc_farm

LIMITS = {"repeat": 2, "run_timeout": 1.0, "min_repeat": 1e-4}
WAITS = {"connect_timeout": 5.0, "wait_timeout": 3.0, "session_timeout": 4.0}
SIZE = 1 << 12


@pytest.fixture(autouse=True, scope="module")
def _soon():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "GRACE", 1.0)
        yield


@pytest.fixture(scope="module")
def farm():
    with rpc_farm() as farm:
        farm.add("board", "board")
        farm.add("first", "pair")
        farm.add("second", "pair")
        farm.add("full", "full", full=True)
        farm.wait("board", "pair", "full")
        yield farm


def adding(number, behind=0):
    """Return a function that adds a number to each of some, and writes so often behind them."""
    a = te.placeholder((SIZE,), name="a")
    b = te.compute((SIZE,), lambda i: a[i] + number, name="b")
    module = tvm.IRModule({"main": te.create_prim_func([a, b])})
    return module if not behind else _reaching(behind)


def _reaching(behind):
    @T.prim_func
    def main(given: T.handle, made: T.handle) -> None:
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        a = T.match_buffer(given, (SIZE,), "float32")
        b = T.match_buffer(made, (SIZE,), "float32")
        for i in T.serial(SIZE):
            b[i] = a[i] + T.float32(1)
        for i in T.serial(behind):
            b[SIZE + i * 64] = T.float32(1)

    return tvm.IRModule({"main": main})


def endless():
    @T.prim_func
    def main(given: T.handle, made: T.handle) -> None:
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        a = T.match_buffer(given, (SIZE,), "float32")
        b = T.match_buffer(made, (SIZE,), "float32")
        for _ in T.serial(1 << 40):
            for i in T.serial(SIZE):
                b[i] = b[i] * T.float32(0.5) + a[i]

    return tvm.IRModule({"main": main})


def candidate(make):
    return Repeatable("task", "direct", "{}", make)


def raising():
    raise ValueError("no such schedule")


def opened(farm, key, *, place=None, limits=(), **waits):
    facts = here.facts() | {"hardware": {}}
    measure = Measure(runner="rpc", key=key, tracker=farm.place, **{**LIMITS, **dict(limits)})
    reach = Reach(tracker=place or farm.place, **{**WAITS, **waits})
    conditions = Conditions.of(facts, fast_algorithms=True)
    turn = Turn(lambda _: None)
    return open_runner(
        Wanted(conditions, {Facet.TARGET: facts}, measure, reach, turn, 0, lambda _: None)
    )


@pytest.fixture(scope="module")
def board(farm):
    """A runner for one device."""
    return opened(farm, "board")


def times(runner, *makers, best=math.inf):
    found = dict(runner.measure([candidate(make) for make in makers], best))
    assert list(found) == list(range(len(makers)))
    return list(found.values())


def works(runner):
    (found,) = times(runner, lambda: adding(1))
    return found.error is None


def test_candidates_are_timed_in_order_and_a_bad_one_costs_itself(board):
    good, bad, slow, last = times(board, lambda: adding(1), raising, endless, lambda: adding(2))
    for found in (good, last):
        assert len(found.seconds) == 2
        assert all(0 < seconds < 1 for seconds in found.seconds)
    assert bad.error == "ValueError: no such schedule"
    assert slow.error == "running took longer than 1 s"
    first, second = board.rounds([candidate(lambda: adding(1)), candidate(lambda: adding(2))], 3)
    assert len(first.seconds) == len(second.seconds) == 3


def test_what_is_known_of_a_device_enters_its_records(board):
    assert board.device["rpc"] == "board"
    assert board.device["threads"] == 2
    assert board.device["machine"] == find_architecture(None)
    assert board.device["cores"]


@pytest.mark.fault("D13")
def test_a_kernel_that_ends_the_session_is_tried_twice_and_fails(board):
    (found,) = times(board, lambda: adding(1, behind=1 << 22))
    assert found.error.startswith("running ended the session: 127.0.0.1:")
    assert works(board)


@pytest.mark.fault("E1")
@pytest.mark.parametrize(
    ("make", "finding", "reason"),
    [
        (lambda: adding(1), Finding.RIGHT, None),
        (lambda: adding(1.5), Finding.WRONG, "from the plain loops on random inputs"),
        (lambda: adding(1, behind=4), Finding.WRONG, "writes outside of its arguments"),
    ],
)
def test_a_wrong_schedule_is_found_by_what_the_device_computes(board, make, finding, reason):
    piece = Piece("checking", "task", adding(1), scheduled=make())
    (found,) = board.checker.check([piece])
    assert isinstance(found, Checked)
    assert found.finding is finding
    assert reason is None or reason in str(found.reason)


@pytest.mark.fault("D12")
def test_a_key_that_nobody_has_is_told_with_those_there_are(farm):
    start = time.monotonic()
    with pytest.raises(SetupError, match=r"no device 'bord': the tracker at .* knows board, full"):
        opened(farm, "bord")
    assert time.monotonic() - start < 30


@pytest.mark.fault("D15")
def test_a_session_that_is_too_long_says_what_to_raise(farm):
    runner = opened(farm, "board", session_timeout=2.0, limits={"run_timeout": 9.0})
    (found,) = times(runner, endless)
    assert found.error == ("the session took longer than 2 s; raise tuning.measure.session_timeout")
    assert works(runner)


@pytest.mark.fault("D16")
def test_a_device_with_a_full_disk_ends_the_run_by_name(farm):
    with pytest.raises(SetupError, match=r"device full, 3 times .*arrived: is its disk full\?"):
        opened(farm, "full")


@pytest.mark.fault("D16")
def test_another_number_of_threads_is_refused(farm, monkeypatch):
    facts = here.facts() | {"num_cores": 1}
    monkeypatch.setattr(here, "facts", lambda: facts)
    with pytest.raises(SetupError, match="start it with TVM_NUM_THREADS=1"):
        opened(farm, "board")


@contextmanager
def proxied(monkeypatch, most, mode):
    """Have devices answer through a network that breaks."""
    started: list[subprocess.Popen[bytes]] = []
    ports: list[int] = []
    request = Tracker.request

    def behind(self, key, seconds):
        address = request(self, key, seconds)
        if not started:
            command = [sys.executable, "-m", "tests.support.tcp_proxy", str(address.port)]
            started.append(subprocess.Popen([*command, str(most), mode], stdout=subprocess.PIPE))
            ports.append(int(started[0].stdout.readline()))  # type: ignore[union-attr]
        return Address(address.host, ports[0], address.word)

    with monkeypatch.context() as patch:
        patch.setattr(Tracker, "request", behind)
        yield
    with started[0] as process:
        process.kill()


@pytest.mark.fault("D14", "D16")
@pytest.mark.parametrize(
    ("most", "mode", "said"),
    [
        (9000, "cut", "device board, 3 times in a row"),
        (9000, "drop", "gave no answer within"),
    ],
)
def test_a_network_that_breaks_in_the_middle_ends_the_run(farm, monkeypatch, most, mode, said):
    runner = opened(farm, "board", session_timeout=3.0, connect_timeout=3.0)
    with proxied(monkeypatch, most, mode), pytest.raises(SetupError, match=said):
        times(runner, lambda: adding(1))
    assert works(runner)


@pytest.mark.fault("D16")
def test_a_slow_network_is_waited_for(farm, monkeypatch, board):
    with proxied(monkeypatch, 0, "slow"):
        assert works(board)


@pytest.mark.fault("D13", "D14")
def test_devices_that_are_frozen_or_killed_are_replaced_as_long_as_there_are_some(farm):
    runner = opened(farm, "pair", connect_timeout=2.0, wait_timeout=2.0, session_timeout=2.0)
    assert works(runner)
    farm.signal("first", signal.SIGSTOP)  # before a batch: it still seems to be there
    assert works(runner)
    measuring = runner.measure([candidate(lambda: adding(1))] * 3)
    assert next(measuring)[1].error is None
    farm.signal("second", signal.SIGKILL)  # in the middle of one
    start = time.monotonic()
    with pytest.raises(SetupError, match="pair"):
        list(measuring)
    assert time.monotonic() - start < 60
    farm.signal("first", signal.SIGCONT)
    assert works(runner)
