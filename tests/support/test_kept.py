"""The process that whole runs of tests are forked from sees what a run leaves behind."""

import os
import time
from pathlib import Path

import pytest

from autopipe.pipeline.isolate import Zygote
from tests.support import kept


def orphan(_argument: object, _emit: object) -> None:
    """Leave a process in a session of its own, which has no parent once this one has ended."""
    ready, told = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.write(told, b".")  # whoever ends this one's group no longer meets it
        time.sleep(60)
    os.read(ready, 1)


def seen(_argument: object, _emit: object) -> dict[str, object]:
    return {"folder": str(Path.cwd()), "variable": os.environ.get("AUTOPIPE_OF_THE_TEST")}


@pytest.fixture(scope="module", autouse=True)
def one_without_tvm():
    with Zygote(preload=(__name__,)) as process, pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept, "_process", lambda: process)
        yield


def test_an_orphan_fails_the_run_that_left_it(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.support.leaks.PATIENCE", 0.2)
    run = kept.Borrowed(())
    run.call(kept.nothing, {}, tmp_path / "log", lambda _: None)
    run.close()
    run.call(orphan, {}, tmp_path / "log", lambda _: None)
    with pytest.raises(AssertionError, match="left a process"):
        run.close()
    run.close()  # it was ended, and is nobody else's fault


def test_a_call_has_the_folder_and_the_variables_of_its_test(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for value in ("one", "two"):
        monkeypatch.setenv("AUTOPIPE_OF_THE_TEST", value)
        found = kept.Borrowed(()).call(seen, {}, tmp_path / "log", lambda _: None)
        assert found == {"folder": str(tmp_path), "variable": value}
