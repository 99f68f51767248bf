"""The pipeline `demo`, whose stages only change a text, and its command line."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Cli = Callable[..., subprocess.CompletedProcess[str]]


def command(*arguments: object) -> list[str]:
    """Return a command of autopipe on stages without TVM."""
    start = "from tests.support.driver import main; main()"
    return [sys.executable, "-c", start, *map(str, arguments)]


def environment(**fake: object) -> dict[str, str]:
    """Return the variables of a command: those in capitals, and what its stages do."""
    extra = {name: str(fake.pop(name)) for name in list(fake) if name.isupper()}
    return {**os.environ, "PYTHONPATH": str(ROOT), **extra} | (
        {"FAKE": json.dumps(fake)} if fake else {}
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder for a store."""
    return tmp_path / "store"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A model that is a text."""
    path = tmp_path / "model.txt"
    path.write_text("ABC")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline file."""
    (tmp_path / "model.txt").write_text("abc")
    path = tmp_path / "demo.yaml"
    path.write_text("version: 1\nname: demo\nmodel: {path: model.txt}\n")
    return path


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """A command of autopipe in a fork of this process."""
    from tests.support import driver, forked

    def run(*arguments: object, **fake: object) -> subprocess.CompletedProcess[str]:
        return forked.run(driver.main, arguments, tmp_path, environment(**fake))

    return run
