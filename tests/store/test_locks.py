"""Waiting for other processes, dead, alive and stopped."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autopipe.errors import StoreError
from autopipe.store import locks
from autopipe.store.gc import collect_garbage
from autopipe.store.locks import FOR_EVER, Patience
from autopipe.store.store import open_store
from tests.support.demo import command, environment

ROOT = Path(__file__).parents[2]
HOLD = """
import sys, time
from pathlib import Path
from autopipe.store import locks
how = {"exclusive": locks.hold_exclusive_lock, "shared": locks.hold_lock}[sys.argv[2]]
with how(Path(sys.argv[1]), locks.FOR_EVER):
    print("held", flush=True)
    time.sleep(60)
"""

Hold = Callable[[Path, str], subprocess.Popen[bytes]]


@pytest.fixture
def hold(no_leaks: None) -> Iterator[Hold]:
    """Start a process that holds a lock, and is stopped."""
    holders = []

    def start(lock: Path, how: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", HOLD, str(lock), how]
        holder = subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT)
        holders.append(holder)
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        holder.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
        return holder

    yield start
    for holder in holders:
        holder.kill()
        holder.communicate()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with open_store(root):
        return root


@pytest.mark.fault("C12", "G13")
@pytest.mark.parametrize("how", ["exclusive", "shared"])
def test_a_stopped_holder_is_named_and_waited_for(root: Path, hold: Hold, how: str) -> None:
    lock = root / "locks" / "gate"
    holder = hold(lock, how)
    told: list[str] = []

    def free_it(who: str) -> None:
        told.append(who)
        holder.send_signal(signal.SIGCONT)
        holder.terminate()

    with open_store(root, Patience(free_it)):
        assert told == [f"the stopped process {holder.pid}"]


@pytest.mark.fault("C12", "G13")
@pytest.mark.parametrize("how", ["exclusive", "shared"])
def test_patience_ends_in_a_line_that_names_the_holder(root: Path, hold: Hold, how: str) -> None:
    lock = root / "locks" / "gate"
    holder = hold(lock, how)
    said = (
        f"{lock}: the stopped process {holder.pid} has had this lock for more than 0.1 s;"
        " end it, or allow more with --lock-timeout"
    )
    with pytest.raises(StoreError) as caught, open_store(root, Patience(seconds=0.1)):
        pytest.fail("it is held")
    assert str(caught.value) == said


def test_gc_waits_no_longer_either(root: Path, hold: Hold) -> None:
    with open_store(root, Patience(seconds=0)) as store:
        hold(root / "locks" / "gate", "shared")
        with pytest.raises(StoreError, match="has had this lock for more than 0 s"):
            collect_garbage(store, keep_days=0)


@pytest.mark.fault("C12", "G13")
def test_the_lock_of_a_holder_that_was_killed_is_free_at_once(root: Path, hold: Hold) -> None:
    holder = hold(root / "locks" / "gate", "exclusive")
    holder.kill()
    holder.wait()
    with open_store(root, Patience(pytest.fail, 0)):
        pass


def test_those_who_share_do_not_wait(root: Path, hold: Hold) -> None:
    lock = root / "locks" / "gate"
    hold(lock, "shared")
    with locks.hold_lock(lock, Patience(pytest.fail, 0)):
        pass


def test_a_holder_that_nobody_knows_is_another_process(
    root: Path, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that sees nothing of the others."""
    hold(root / "locks" / "gate", "shared")
    monkeypatch.setattr(locks, "_known_to_the_kernel", lambda _: "")
    assert locks.describe_holder(root / "locks" / "gate") == "another process"


def test_waiting_for_ever_ends_as_soon_as_the_lock_is_free(root: Path, hold: Hold) -> None:
    holder = hold(root / "locks" / "gate", "exclusive")
    waiting = threading.Thread(target=lambda: open_store(root, FOR_EVER).__enter__())
    waiting.start()
    time.sleep(1.2)
    assert waiting.is_alive()
    holder.kill()
    waiting.join(timeout=30)
    assert not waiting.is_alive()


@pytest.mark.fault("C12", "G13")
def test_a_run_waits_no_longer_than_it_is_told(
    tmp_path: Path,
    file: Path,
    cli: Callable[..., subprocess.CompletedProcess[str]],
    hold: Hold,
) -> None:
    assert cli("run", file, do="write").returncode == 0
    (key,) = (
        path.stem
        for path in tmp_path.glob(".autopipe/actions/*.json")
        if '"stage":"act"' in path.read_text()
    )
    holder = hold(tmp_path / ".autopipe" / "locks" / key, "exclusive")
    done = cli("run", file, "--force", "act", "--lock-timeout", "0.1", do="write")
    assert done.returncode == 5
    assert done.stderr == (
        f"error: {tmp_path}/.autopipe/locks/{key}: the stopped process {holder.pid}"
        " has had this lock for more than 0.1 s; end it, or allow more with --lock-timeout\n"
    )
    patient = subprocess.Popen(
        command("run", file, "--force", "act"), cwd=tmp_path, env=environment(do="write"),
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert patient.stdout is not None
    for line in patient.stdout:
        if f"waiting for the stopped process {holder.pid}" in line:
            break
    else:
        pytest.fail("nobody was named")
    holder.kill()
    patient.communicate()
    assert patient.returncode == 0


@pytest.mark.parametrize("arguments", [["plan"], ["cache", "gc"]])
def test_other_commands_say_for_whom_they_wait(
    tmp_path: Path,
    file: Path,
    cli: Callable[..., subprocess.CompletedProcess[str]],
    hold: Hold,
    arguments: list[str],
) -> None:
    assert cli("run", file).returncode == 0
    holder = hold(tmp_path / ".autopipe" / "locks" / "gate", "exclusive")
    waiting = subprocess.Popen(
        command(*arguments, *([file] if arguments == ["plan"] else [])), cwd=tmp_path,
        env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert waiting.stderr is not None
    said = f"warning: store: waiting for the stopped process {holder.pid}\n"
    assert waiting.stderr.readline() == said
    holder.kill()
    assert waiting.communicate()[1] == ""
    assert waiting.returncode == 0
