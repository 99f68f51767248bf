"""Two runs that time on one machine: one after the other, and never for ever."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autopipe.measure import turn
from autopipe.measure.turn import Turn, TurnTimeout

OTHER = """
import sys, time
from autopipe.measure.turn import Turn
with Turn(print).taken():
    print("taken", flush=True)
    sys.stdin.readline()
    open(sys.argv[1], "a").write("other\\n")
"""


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(turn, "_QUIET", 0.05)
    monkeypatch.setattr(turn, "_GLANCE", 0.05)
    return tmp_path


@contextmanager
def other(order: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Have another process take a turn, which it ends when a line is written to it."""
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, order], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"taken\n"
            yield process
        finally:
            process.kill()


@pytest.mark.fault("D17", "G13")
def test_a_run_waits_for_its_turn_and_says_once_for_whom(tmp_path):
    order, said = tmp_path / "order", list[str]()
    with other(order) as process:

        def let_go(text):
            said.append(text)
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.flush()

        ours = Turn(let_go)
        for _ in range(2):
            with ours.taken(), order.open("a") as file:
                file.write("ours\n")
        assert order.read_text().split() == ["other", "ours", "ours"]
        assert said == [f"waiting for process {process.pid}, which is timing on this machine"]


def test_a_turn_begins_when_the_rest_of_the_run_has_settled(tmp_path):
    ours, order = Turn(pytest.fail), list[str]()
    ours.settle = lambda: order.append("settled")
    with ours.taken():
        order.append("taken")
    assert order == ["settled", "taken"]


@pytest.mark.fault("D17", "G13")
def test_one_that_is_stopped_is_passed_and_named(tmp_path):
    said = list[str]()
    with other(tmp_path / "order") as process:
        process.send_signal(signal.SIGSTOP)
        while not turn._is_holder_stopped(tmp_path / "autopipe" / "timing"):
            time.sleep(0.01)
        ours = Turn(said.append)
        for _ in range(2):
            with ours.taken():
                pass
    (line,) = said
    assert line.startswith(f"the stopped process {process.pid} has kept others from timing")
    assert line.endswith("end it if it hangs")


@pytest.mark.fault("D17")
def test_one_that_never_ends_is_passed_in_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(turn, "_MAX_WAIT_SECONDS", 0.3)
    said = list[str]()
    with other(tmp_path / "order") as process, Turn(said.append).taken():
        assert process.poll() is None
    assert len(said) == 2
    assert f"process {process.pid} has kept others" in said[1]


@pytest.mark.fault("D17", "G13")
def test_no_run_waits_longer_than_it_has_time(tmp_path):
    ours = Turn(lambda _: None)
    ours.left = lambda: 0.0
    with other(tmp_path / "order"), pytest.raises(TurnTimeout), ours.taken():
        pytest.fail("it is the turn of another")
    with ours.taken():
        pass


@pytest.mark.fault("D17", "G13")
def test_a_turn_ends_with_its_process(tmp_path):
    with other(tmp_path / "order") as process:
        process.kill()
        process.wait()
        with Turn(pytest.fail).taken():
            pass


def test_without_a_place_to_lock_nobody_waits(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "gone"))
    with Turn(pytest.fail).taken():
        pass
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    with Turn(pytest.fail).taken():
        pass


def test_the_place_of_somebody_else_is_not_used(tmp_path, monkeypatch):
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    assert turn._find_lock_path() is None
