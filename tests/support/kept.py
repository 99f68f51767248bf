"""One process with TVM for all whole runs of a worker, instead of one for each run.

It imports once what a run takes seconds of processor time to import. Each call is still a fork of
it, with the variables, the folder and the temporary folder that a process of its own would have.
"""

import os
import secrets
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from autopipe import stages
from autopipe.api import flow
from autopipe.errors import AutopipeError
from autopipe.pipeline.events import Emit
from autopipe.pipeline.isolate import Bug, Entry, Zygote
from autopipe.processes.variables import select_variables
from tests.support.leaks import PLANTED, survivors

MARK = "AUTOPIPE_TEST_KEPT"
"""A variable that the process was started with, and so all that it has ever forked."""

OURS = secrets.token_hex(8)
"""What it says there, of this worker."""

PRELOADED = (
    *stages.PRELOADED, "onnx", "safetensors.numpy",
    "autopipe.building.compiling", "autopipe.compiler.frontends.onnx.load",
    "autopipe.compiler.lowering", "autopipe.measure.check", "autopipe.measure.timing",
    "autopipe.packaging.pack", "autopipe.tuning.run", "autopipe.verification.check", "xgboost",
    "cyclonedx.model.bom", "autopipe.schedules.engines.ansor", "tests.support.kept",
)  # fmt: skip


@cache
def _process() -> Zygote:
    """Return the process of this worker, which starts when it is first called."""
    return Zygote(PRELOADED)


def used() -> float:
    """Return the seconds of processor time of the process that is kept, and of its children."""
    process = _alive()
    return 0.0 if process is None else sum(process.cpu_times()[:4])


def _alive() -> psutil.Process | None:
    process = _process()._process
    return None if process is None or process.poll() is not None else psutil.Process(process.pid)


def _start(log: Path) -> None:
    """Start the process; that it outlives a test is no leak of the test."""
    _process().close()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(PLANTED, raising=False)
        patch.setenv(MARK, OURS)
        _process().call(nothing, {}, log, lambda _: None)


def nothing(_argument: object, _emit: object) -> None:
    """Answer the first call."""


class Borrowed(Zygote):
    """Takes the place of a zygote that is started for a run, and forks from the one there is."""

    def call(
        self,
        entry: Entry[Any],
        argument: Mapping[str, Any],
        log: Path,
        emit: Emit,
        seconds: float | None = None,
    ) -> Any:
        if not isinstance(entry, str):
            entry = f"{entry.__module__}:{entry.__qualname__}"
        request = {
            "entry": entry, "argument": argument,
            "folder": os.fspath(Path.cwd()),
            "variables": select_variables(**self._variables), "path": sys.path,
        }  # fmt: skip
        if _alive() is None:
            _start(log)
        try:
            return _process().call(enter, request, log, emit, seconds)
        except (AutopipeError, Bug):
            raise
        except BaseException:  # nobody reads what is still to be said
            _process().close()
            raise

    def close(self) -> None:
        """Leave the process to the next run; nothing of this one may be left in it."""
        process = _alive()
        left = survivors(MARK, OURS, -1 if process is None else process.pid)
        assert left == [], "a run has left a process"


@pytest.fixture(scope="package", autouse=True)
def one_process() -> Iterator[None]:
    """Have the whole runs of a folder's tests borrow it; for the `conftest.py` of the folder."""
    with shared(flow):
        yield


@contextmanager
def shared(module: ModuleType) -> Iterator[None]:
    """Have a module of ours that starts zygotes borrow the one there is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "Zygote", Borrowed)
        yield
    _process().close()


def enter(request: Mapping[str, Any], emit: Emit) -> object:
    """Make the call that is asked for; called in the child."""
    os.environ.clear()
    os.environ.update(request["variables"])
    os.environ.pop("OPENBLAS_NUM_THREADS", None)
    sys.path[:] = request["path"]
    os.chdir(request["folder"])
    tempfile.tempdir = None
    module, _, name = request["entry"].partition(":")
    return getattr(import_module(module), name)(request["argument"], emit)
