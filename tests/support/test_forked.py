"""A command in a fork is a process of its own, and is seen to leave none."""

import os
import sys
import time
from pathlib import Path

import pytest

from tests.support import forked


def main() -> None:
    sys.stdout.write(f"{os.environ['NAME']} {Path.cwd()} {' '.join(sys.argv[1:])}\n")
    sys.exit(3)


def test_it_has_its_own_variables_folder_output_and_code(tmp_path):
    done = forked.run(main, ("a", 1), tmp_path, {"NAME": "me"})
    assert (done.returncode, done.stdout) == (3, f"me {tmp_path} a 1\n")


def orphan() -> None:
    if os.fork() == 0:
        os.setsid()
        time.sleep(60)


def test_one_that_leaves_a_process_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(forked, "PATIENCE", 0.2)
    with pytest.raises(AssertionError, match="outlive the command"):
        forked.run(orphan, (), tmp_path, {})
