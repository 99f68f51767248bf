import os
import signal
import sys
import time

import pytest

from autopipe.errors import ConfigError, ModelError
from autopipe.processes.sandbox import run_in_sandbox

MEMORY = 2**28


def failing(error):
    def work():
        raise error

    return work


def test_nothing_comes_of_good_work(capfd):
    assert run_in_sandbox(lambda: str(os.write(1, b"noise")), memory=MEMORY, seconds=10) == "5"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("error", [ModelError("bad: ü"), ConfigError("bad: ü")])
def test_expected_errors_come_through(error):
    with pytest.raises(type(error), match=r"^bad: ü$"):
        run_in_sandbox(failing(error), memory=MEMORY, seconds=10)


@pytest.mark.fault("B14", "G15")
@pytest.mark.parametrize(
    ("work", "told"),
    [
        (failing(KeyError("odd")), "cannot be checked: KeyError: 'odd'"),
        (failing(RecursionError("deep")), "RecursionError"),
        (lambda: bytearray(2**30), "more than 256 MiB"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "signal 11"),
        (lambda: os._exit(3), "no answer"),
        (sys.exit, "no answer"),
    ],
)
def test_other_ends_are_the_models_fault(work, told):
    with pytest.raises(ModelError, match=told):
        run_in_sandbox(work, memory=MEMORY, seconds=10)


def spin():
    while True:
        pass


@pytest.mark.fault("B14", "G15")
@pytest.mark.parametrize("work", [spin, lambda: time.sleep(60)])
def test_a_hang_ends(work):
    start = time.monotonic()
    with pytest.raises(ModelError, match="longer than 1 s"):
        run_in_sandbox(work, memory=MEMORY, seconds=1)
    assert time.monotonic() - start < 30


def test_no_child_is_left():
    with pytest.raises(ModelError):
        run_in_sandbox(lambda: time.sleep(60), memory=MEMORY, seconds=1)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_the_limits_are_the_childs_alone():
    run_in_sandbox(lambda: None, memory=MEMORY, seconds=30)
    assert len(bytearray(2**30)) == 2**30
