"""The fixtures that all tests share."""

import os
from collections.abc import Iterator

import pytest

# Tests train cost models in this process and fork it later: OpenMP's threads do not survive that.
os.environ["OMP_THREAD_LIMIT"] = "1"

pytest_plugins = ["tests.support.leaks", "tests.support.small_build"]


@pytest.fixture(scope="session", autouse=True)
def own_turns(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have tests take turns among themselves only, whatever else is timing on this machine.

    All workers of pytest-xdist take the same turns: what is timed in one waits for the other's.
    """
    base = tmp_path_factory.getbasetemp()
    runtime = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "runtime"
    runtime.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        yield
