"""`pytest --fast`: the files that import no TVM and start no process, for the inner loop.

Which these are is read from the folder and the text of a file, before anything is imported. Should
one of them import TVM all the same, a test or the run fails.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SLOW = {
    "api", "building", "cli", "compiler", "faults", "measure", "processes", "safety", "schedules",
    "stages", "system", "tuning",
}  # fmt: skip
"""Folders of tests whose subject is TVM or processes, or that are more than units."""

HEAVY = re.compile(
    r"^\s*(import|from) (tvm|onnx|xgboost|subprocess|multiprocessing)"
    r"|(autopipe|tests)\.(api|building|cli|compiler|measure|safety|schedules|stages|tuning)\b"
    r"|autopipe import open_package|os\.fork|Zygote"
    r"|small_build|pipeline\.crashes|\b(machine|odd)\b",
    re.MULTILINE,
)
"""What is in a file that imports much, starts processes, or asks for fixtures that do."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="only files that import no TVM")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a file or a folder before anything of it is imported."""
    if not config.getoption("--fast"):
        return None
    return None if is_fast(collection_path) else True


def is_fast(path: Path) -> bool:
    """Return whether a file of tests, or some in a folder, are fast."""
    if path.is_dir():
        return path.name not in SLOW
    return not (path.name.startswith("test_") and HEAVY.search(path.read_text("utf-8")))


@pytest.fixture(autouse=True)
def fast_tests_import_no_tvm(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the first test of a fast run after which TVM is there."""
    before = "tvm" in sys.modules
    yield
    if request.config.getoption("--fast") and "tvm" in sys.modules and not before:
        pytest.fail("it imports TVM, and --fast takes it: see tests/support/fast.py")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse a fast run whose files import TVM already."""
    if session.config.getoption("--fast") and "tvm" in sys.modules:
        raise pytest.UsageError("a file that --fast takes imports TVM: see tests/support/fast.py")
