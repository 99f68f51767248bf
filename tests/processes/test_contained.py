"""Whatever work in a child does, the process it was forked from goes on and knows what happened."""

import ctypes
import errno
import os
import select
import signal
import subprocess
import sys
import time

import psutil
import pytest

from autopipe.errors import StoreError
from autopipe.processes import contained
from autopipe.processes.contained import Child, Failed

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

MIB = 1 << 20
PROMISED = 3 << 30
"""Bytes that hungry work stops at, so that a limit that is none hurts nobody.

More than a test process has freed and holds, which is taken before any limit is felt.
"""


def crash():
    os.kill(os.getpid(), signal.SIGSEGV)


def native_crash():
    ctypes.string_at(0)


def native_hang():
    ctypes.CDLL(None).sleep(1000)


def loop():
    while True:
        pass


def freeze():
    os.kill(os.getpid(), signal.SIGSTOP)


def deaf():
    """Hang, and take no notice of what could end it."""
    signal.signal(signal.SIGABRT, signal.SIG_IGN)
    loop()


def eat():
    return len([bytearray(MIB) for _ in range(PROMISED // MIB)])


def eat_natively():
    """Take memory where nobody raises MemoryError, as a compiler does, and give up on it."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    for _ in range(PROMISED // MIB):
        if not libc.malloc(MIB):
            os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
            os.abort()


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def leave():
    os._exit(3)


def give_up():
    sys.exit(3)


def mistake():
    raise KeyError(1)


def odd_answer():
    return object()


WAYS = {
    crash: "killed by SIGSEGV",
    native_crash: "killed by SIGSEGV",
    killed: r"killed by SIGKILL \(out of memory\?\)",
    loop: "no answer within 1 s",
    native_hang: "no answer within 1 s",
    deaf: "no answer within 1 s",
    freeze: "no answer within 1 s",
    eat: "out of memory",
    eat_natively: "out of memory",
    leave: "ended by itself, with status 3",
    give_up: "SystemExit: 3",
    mistake: "KeyError: 1",
    odd_answer: "TypeError: Object of type object is not JSON serializable",
}


def handler(request):
    """Do what is asked, or count how often anything was."""
    ways = {way.__name__: way for way in WAYS}
    return ways[request]() if request in ways else {"echo": request, "pid": os.getpid()}


@pytest.fixture
def child(monkeypatch):
    monkeypatch.setattr(contained, "MEMORY", 200 * MIB)
    with Child(lambda: handler) as child:
        yield child


@pytest.mark.fault("G12")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_fails_is_known_and_the_next_request_is_answered(child, way):
    child.ask("before")
    child.seconds = 1.0 if "no answer" in WAYS[way] else 60.0
    with pytest.raises(Failed, match=WAYS[way]):
        child.ask(way.__name__)
    child.seconds = 60.0
    assert child.ask("after")["echo"] == "after"


@pytest.mark.parametrize("way", [crash, loop, native_hang, mistake], ids=lambda way: way.__name__)
def test_the_log_says_where_it_was(child, way):
    child.seconds = 1.0 if way is not mistake else 60.0
    with pytest.raises(Failed) as failed:
        child.ask(way.__name__)
    assert f"in {way.__name__}" in failed.value.log
    assert "pytest" not in failed.value.log, "what every child has is left out"


def test_what_is_printed_reaches_the_log_of_the_stage(capfd):
    os.write(2, b"first\n")

    def talk(_):
        os.system("echo from a program; echo and >&2")
        sys.stdout.write("me\n")

    with Child(lambda: talk) as child:
        child.ask()
    assert capfd.readouterr().err == "first\nfrom a program\nand\nme\n"


def test_a_mistake_leaves_the_child_as_it_is_and_hunger_does_not(child):
    (first, second) = child.ask("x"), child.ask("y")
    with pytest.raises(Failed):
        child.ask("mistake")
    assert child.alive
    assert first["pid"] == second["pid"] == child.ask("z")["pid"]
    with pytest.raises(Failed):
        child.ask("eat")
    assert not child.alive


def test_what_can_not_be_printed_is_told_all_the_same():
    def begin():
        os.dup2(os.open("/dev/full", os.O_WRONLY), 2)

        def refuse(_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "there")

        return refuse

    with Child(begin) as child:
        with pytest.raises(StoreError, match="No space left on device"):
            child.ask()
        assert child.alive


def test_a_second_attempt_is_made_in_a_fresh_child(tmp_path):
    tries = tmp_path / "tries"

    def once_bad(_):
        with tries.open("a") as file:
            file.write(f"{os.getpid()} ")
        if len(tries.read_text().split()) % 2:
            crash()
        return "well"

    with Child(lambda: once_bad) as child:
        assert child.twice() == "well"
    assert len(set(tries.read_text().split())) == 2


@pytest.mark.fault("G12")
def test_a_second_failure_is_final(child):
    with pytest.raises(Failed, match="killed by SIGSEGV"):
        child.twice("crash")


def test_what_work_has_started_ends_with_it(tmp_path):
    def start(_):
        server = subprocess.Popen(["sleep", "60"])
        (tmp_path / "pid").write_text(str(server.pid))
        crash()

    with Child(lambda: start) as child, pytest.raises(Failed):
        child.ask()
    deadline = time.monotonic() + 30
    pid = int((tmp_path / "pid").read_text())
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_memory_without_a_bound_is_there(monkeypatch):
    monkeypatch.setattr(contained, "MEMORY", 10 * MIB)
    with Child(lambda: lambda _: len(bytearray(100 * MIB)), bounded=False) as child:
        assert child.ask() == 100 * MIB


@pytest.mark.fault("G12")
@pytest.mark.parametrize("way", ["before it reads", "while it answers"])
def test_a_child_that_is_stopped_in_the_middle_of_a_message_is_given_up(way):
    """More than the kernel keeps for it is on the way."""
    much = "x" * 4 * MIB
    with Child(lambda: lambda request: request or much, seconds=60) as child:
        stop = psutil.Process(child.ask("pid") and child._process.pid)
        child.seconds = 0.5
        if way == "while it answers":
            link = child._link
            assert link is not None
            link.send(None)
            assert select.select([link], [], [], 60)[0]
        stop.suspend()
        with pytest.raises(Failed, match=r"no answer within 0\.5 s"):
            child.ask(much if way == "before it reads" else None)
        child.seconds = 60
        assert child.ask("after") == "after"
