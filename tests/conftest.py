"""The fixtures that all tests share."""

import gc
import os
import sys
from collections.abc import Iterator

import pytest

from tests.support import shared

# Tests train cost models in this process and fork it later: OpenMP's threads do not survive that.
os.environ["OMP_THREAD_LIMIT"] = "1"

# What our commands print is buffered as it is for anybody, whoever runs these tests.
os.environ.pop("PYTHONUNBUFFERED", None)

pytest_plugins = [
    "tests.support.demo", "tests.support.fast", "tests.support.leaks", "tests.support.small_build",
]  # fmt: skip


LONGEST = (
    "tasks",
    "system",
    "stages",
    "docs",
    "store",
    "records",
    "faults",
    "tuning",
    "schedules",
    "compiler",
    "api",
    "cli",
)
"""The folders whose files take longest, the longest first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest: with several workers, little is left for one at the end."""

    def place(item: pytest.Item) -> int:
        folder = item.nodeid.split("/")[1]
        return LONGEST.index(folder) if folder in LONGEST else len(LONGEST)

    items.sort(key=place)


def pytest_collection() -> None:
    """Search for no garbage while all is imported: it stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what was imported out of each search from now on.

    Such a search takes half a second here, and in a fork it copies all that it looks at.
    """
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def no_small_process() -> Iterator[None]:
    """End the process that a module's sweeps are forked from: others count children."""
    yield
    if (crashes := sys.modules.get("tests.pipeline.crashes")) is not None:
        crashes.end()


@pytest.fixture(scope="session", autouse=True)
def own_turns(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have tests take turns among themselves only, whatever else is timing on this machine.

    All workers of pytest-xdist take the same turns: what is timed in one waits for the other's.
    """
    runtime = shared.folder(tmp_path_factory) / "runtime"
    runtime.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        yield
