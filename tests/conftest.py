"""The fixtures that all tests share."""

import os
from collections.abc import Iterator

import pytest

# Tests train cost models in this process and fork it later: OpenMP's threads do not survive that.
os.environ["OMP_THREAD_LIMIT"] = "1"

pytest_plugins = ["tests.leaks", "tests.small_build"]


@pytest.fixture(scope="session", autouse=True)
def own_turns(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have tests take turns among themselves only, whatever else is timing on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        yield
