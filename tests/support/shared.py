"""What is built once for all workers of pytest-xdist, and only read by tests."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def folder(factory: pytest.TempPathFactory) -> Path:
    """Return the temporary folder of this run of pytest: that of all its workers."""
    base: Path = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that the first worker that asks for it makes; the others wait.

    Args:
        factory: The fixture `tmp_path_factory`.
        name: What the folder is called.
        make: Fills the folder, which is there and empty. Should it fail, the next worker tries in
            a folder of its own, so that one failure is not taken for another.
    """
    made = folder(factory) / f"{name}.made"
    with made.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if not (place := file.read()):
            place = str(factory.mktemp(name))
            make(Path(place))
            file.write(place)
    return Path(place)
