"""The fixture `no_leaks`: a command leaves nothing behind."""

import fcntl
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import psutil
import pytest

PLANTED = "AUTOPIPE_TEST_SECRET"
"""An environment variable that nothing autopipe writes may contain."""

PATIENCE = 30.0
"""Seconds that processes have to end."""

COMMAND = re.compile(
    r'"-m", "autopipe"|support(\.| import )driver\b|\bcli\b|autopipe\.__main__|system\.checkout\b'
)
"""What is in a file whose tests start our command line, in a process of its own or here."""


def _heirs(name: str, value: str, but: int) -> list[psutil.Process]:
    """List the other processes that were started with a variable, orphans included."""
    heirs = []
    for process in psutil.process_iter():
        try:
            if process.pid != but and process.environ().get(name) == value:
                heirs.append(process)
        except (psutil.Error, OSError):  # somebody else's, or over by now
            continue
    return heirs


def survivors(name: str, value: str, but: int) -> list[str]:
    """End what is still there, or it disturbs the tests that follow; return their names.

    Args:
        name: A variable that all have that were started, and all that these have forked.
        value: What it says there.
        but: The number of the process that may stay.
    """
    deadline = time.monotonic() + PATIENCE
    while (heirs := _heirs(name, value, but)) and time.monotonic() < deadline:
        time.sleep(0.02)
    names = [process.name() for process in heirs]
    for process in heirs:
        process.kill()
    return names


def _held(lock: Path) -> bool:
    """Return whether some process holds a lock of a store."""
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@cache
def starts_a_command(file: Path) -> bool:
    """Return whether the tests of a file start our command line."""
    return COMMAND.search(file.read_text("utf-8")) is not None


@pytest.fixture(autouse=True)
def commands_leave_nothing(request: pytest.FixtureRequest) -> None:
    """Ask for `no_leaks` in the name of each test of a file that starts our command line."""
    if starts_a_command(request.path):
        request.getfixturevalue("no_leaks")


@pytest.fixture
def no_leaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test that leaves a process, a temporary file, a held lock, or a secret.

    Stores and secrets are looked for below `tmp_path`. A command is to get the environment of its
    test: processes are known by a planted variable.
    """
    secret = secrets.token_hex(16)
    temporary = tmp_path / "TMPDIR"
    temporary.mkdir()
    monkeypatch.setenv(PLANTED, secret)
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield
    assert survivors(PLANTED, secret, os.getpid()) == [], "processes outlive the command"
    assert list(temporary.iterdir()) == [], "temporary files are left"
    stores = [gate.parents[1] for gate in tmp_path.rglob("locks/gate")]
    assert [lock for root in stores for lock in root.glob("locks/*") if _held(lock)] == [], (
        "locks are held"
    )
    assert [path for root in stores for path in root.glob("tmp/*")] == [], "a store is not tidy"
    files = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [p for p in files if secret.encode() in p.read_bytes()] == [], "a secret was written"
