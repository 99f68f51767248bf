"""Folders of files that pass are gone when their process is."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from autopipe.store.passing import open_temporary_folder

HOLD = """
from autopipe.store.passing import open_temporary_folder
with open_temporary_folder() as folder:
    (folder / "file").write_text("large")
    print(folder, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def _own_temporary_files(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def holder():
    """Start a process that holds a folder; return both."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    return child, Path(child.stdout.readline().strip())


def test_a_folder_is_empty_and_gone_thereafter():
    with open_temporary_folder() as folder:
        assert list(folder.iterdir()) == []
        (folder / "file").write_text("x")
    assert not folder.exists()


def test_what_a_killed_process_left_is_cleared_and_what_a_live_one_has_is_not():
    (killed, left), (alive, kept) = holder(), holder()
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert left.exists()
    with open_temporary_folder():
        assert not left.exists()
        assert kept.exists()
    alive.communicate("\n")
    assert not kept.exists()


def test_a_place_that_somebody_else_has_taken_is_left_alone(tmp_path):
    (tmp_path / f"autopipe-{os.geteuid()}").write_text("a file of somebody")
    with open_temporary_folder() as folder:
        assert folder.is_dir()
    assert not folder.exists()
