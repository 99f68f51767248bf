"""The fixture `no_leaks`: a command leaves nothing behind."""

import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

PLANTED = "AUTOPIPE_TEST_SECRET"
"""An environment variable that nothing autopipe writes may contain."""

PATIENCE = 5.0
"""Seconds that processes have to end."""


def _heirs(secret: str) -> list[psutil.Process]:
    """List the other processes that inherited the secret, orphans included."""
    heirs = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(PLANTED) == secret:
                heirs.append(process)
        except (psutil.Error, OSError):  # somebody else's, or over by now
            continue
    return heirs


def _survivors(secret: str) -> list[str]:
    """End what is still there, or it disturbs the tests that follow; return their names."""
    deadline = time.monotonic() + PATIENCE
    while (heirs := _heirs(secret)) and time.monotonic() < deadline:
        time.sleep(0.02)
    names = [process.name() for process in heirs]
    for process in heirs:
        process.kill()
    return names


@pytest.fixture
def no_leaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test that leaves a process, a temporary file, or a secret below `tmp_path`.

    A test of a command asks for it, and gives the command its own environment: processes are
    known by a planted variable.
    """
    secret = secrets.token_hex(16)
    temporary = tmp_path / "TMPDIR"
    temporary.mkdir()
    monkeypatch.setenv(PLANTED, secret)
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield
    assert _survivors(secret) == [], "processes outlive the command"
    assert list(temporary.iterdir()) == [], "temporary files are left"
    files = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [p for p in files if secret.encode() in p.read_bytes()] == [], "a secret was written"
