"""What the system refuses is told from what libraries raise and print."""

import errno
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from autopipe.errors import ConfigError, GateError, SetupError, StageError, StoreError
from autopipe.host import memory, refusal
from autopipe.host.control_groups import folders
from autopipe.host.memory import Used, describe_kill
from autopipe.processes import bounds
from autopipe.processes.contained import Child
from autopipe.store import arrays

FULL = os.strerror(errno.ENOSPC)
LARGE = os.strerror(errno.EFBIG)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def full(number: int = errno.ENOSPC) -> OSError:
    return OSError(number, os.strerror(number), "/d/f")


TOLD = [
    (full(), StoreError, f"/d/f: {FULL}"),
    (full(errno.EMFILE), StoreError, "/d/f: Too many open files"),
    (OSError(errno.EIO, "Input/output error"), StoreError, "/t: Input/output error"),
    (caused(RuntimeError("x"), full()), StoreError, f"/d/f: {FULL}"),
    (RuntimeError("I/O error: No space left on device (os error 28)"), StoreError, f"/t: {FULL}"),
    (OSError("65536 requested and 5120 written"), StoreError, f"/t: {FULL}"),
    (
        RuntimeError("ld terminated with signal 25 [File size limit exceeded]"),
        StoreError, f"/t: {LARGE}",
    ),
    (FileNotFoundError(2, "No usable temporary directory found"), StoreError, "/t: no folder"),
    (caused(ConfigError("a: Too many open files"), full(errno.EMFILE)), StoreError, "a: Too"),
    (caused(ConfigError("a: Permission denied"), full(errno.EACCES)), ConfigError, "a: Per"),
    (GateError("No space left on device"), GateError, "No space"),
    (MemoryError(), SetupError, "out of memory; "),
    (RuntimeError("std::bad_alloc"), SetupError, "out of memory; "),
    (RuntimeError("can't start new thread"), SetupError, "out of memory for a thread"),
    (BlockingIOError(errno.EAGAIN, "Resource unavailable"), SetupError, "out of memory for"),
]  # fmt: skip


@pytest.mark.fault("M1", "M3")
@pytest.mark.parametrize(("error", "kind", "text"), TOLD, ids=lambda each: str(each)[:40])
def test_what_the_system_refused_is_told(
    error: Exception, kind: type[Exception], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/t")
    found = refusal.to_final_error(error)
    assert type(found) is kind
    assert str(found).startswith(text)


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), FileNotFoundError(2, "No such file", "/f"), sqlite3.OperationalError("y")],
)
def test_anything_else_is_a_bug(error: Exception) -> None:
    assert refusal.to_final_error(error) is None
    error.__cause__ = error  # which `raise error from error` makes
    assert refusal.to_final_error(error) is None
    assert refusal.to_final_error(KeyboardInterrupt()) is None


def test_a_stage_that_says_it_in_words_of_a_library_is_told_too() -> None:
    error = StageError("the reference failed: I/O error: No space left on device (os error 28)")
    assert str(refusal.to_refusal_error(error, "/out")) == f"/out: {FULL}"
    assert refusal.to_refusal_error(StageError("it is slow"), "/out") is None


def limited(kind: int, size: int, work: str) -> subprocess.CompletedProcess[str]:
    """Run some Python below a limit."""
    return subprocess.run(
        [sys.executable, "-c", work], capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(kind, (size, size)),
    )  # fmt: skip


@pytest.mark.fault("M1")
def test_arrays_that_do_not_fit_are_an_error_with_a_path(tmp_path: Path) -> None:
    work = (
        "import numpy as np\nfrom pathlib import Path\nfrom autopipe.store import arrays\n"
        f"try:\n  arrays.save({{'w': np.zeros(9000)}}, Path({str(tmp_path / 'w')!r}))\n"
        "except OSError as error:\n  print(error.errno, error.filename)\n"
    )
    done = limited(resource.RLIMIT_FSIZE, 20_000, work)
    assert done.stdout.split() == [str(errno.EFBIG), str(tmp_path / "w")], done.stderr


def test_arrays_have_the_bytes_that_safetensors_gives_them(tmp_path: Path) -> None:
    from safetensors.numpy import save

    named = {"b": np.arange(3, dtype="float32"), "a": np.zeros((2, 0), "int64")}
    arrays.save(named, tmp_path / "w")
    assert (tmp_path / "w").read_bytes() == save(named)


@pytest.mark.fault("M3")
@pytest.mark.parametrize("size", [20, 34, 43, 255])
def test_too_few_addresses_are_said_to_be_memory(size: int) -> None:
    """So few that the modules of a command cannot be imported, or no failure be told."""
    work = (
        "import runpy, sys; sys.argv = ['autopipe', 'validate', 'none.yaml'];"
        " runpy.run_module('autopipe', run_name='__main__')"
    )
    done = limited(resource.RLIMIT_AS, size << 20, work)
    assert done.returncode == SetupError.exit_code, done.stderr
    assert done.stderr.startswith(f"error: out of memory; addresses are limited to {size} MiB and")
    assert len(done.stderr.splitlines()) == 1


def words(text: str) -> object:
    def handler(_: object) -> object:
        sys.stderr.write(text)
        sys.stderr.flush()
        os._exit(1)

    return handler


@pytest.mark.fault("M1")
def test_native_code_that_can_not_write_is_no_failure_of_the_work() -> None:
    printed = f"LLVM ERROR: IO failure on output stream: {FULL}\n"
    with Child(lambda: words(printed)) as child, pytest.raises(StoreError, match=FULL):  # type: ignore[arg-type,return-value]
        child.ask()


@pytest.mark.fault("M3")
def test_a_child_below_a_limit_of_its_parent_is_not_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bound above it can not be set, and all work failed of that."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 30, 1 << 30))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    bounds.limit_address_space(16 << 30)
    assert asked == [(1 << 30, 1 << 30)]


@pytest.mark.fault("M4")
def test_a_kill_is_told_with_what_is_known_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    used = Used(peak=3 << 30, seconds=5.0, ended=0)
    assert describe_kill(signal.SIGSEGV, used) == "killed by SIGSEGV"
    assert describe_kill(signal.SIGKILL) == "killed by SIGKILL (out of memory?)"
    assert "(out of memory? it held 3.0 GiB at its peak; " in describe_kill(signal.SIGKILL, used)
    ended = describe_kill(signal.SIGKILL, Used(3 << 30, 5.0, 1))
    assert "the kernel ended it for want of memory, it held 3.0 GiB" in ended
    monkeypatch.setattr(resource, "getrlimit", lambda _: (6, 6))
    assert "all the processor time it may have (`ulimit -t`)" in describe_kill(signal.SIGKILL, used)


@pytest.mark.fault("M4")
def test_the_limit_of_a_container_and_what_was_ended_in_it_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = tmp_path / "box"
    group.mkdir()
    (group / "memory.max").write_text(f"{1 << 30}\n")
    (group / "memory.events").write_text("low 0\noom 4\noom_kill 3\n")
    (tmp_path / "cgroup").write_text("4:cpu:/\n0::/box\n")
    where = partial(folders, groups=tmp_path / "cgroup", root=tmp_path)
    monkeypatch.setattr(memory, "folders", where)
    assert memory.count_oom_kills() == 3
    assert memory.suggest_more_memory() == "this container may have 1.0 GiB: give it more"
    (group / "memory.max").write_text("max\n")
    assert memory.suggest_more_memory().startswith("this machine has")
