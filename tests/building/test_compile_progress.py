"""What a build has compiled is counted while its children compile."""

import time

import pytest

from autopipe.building import compile_progress
from autopipe.building.compile_progress import CompileProgress
from autopipe.building.prepared_checks import PreparedChecks
from autopipe.pipeline import counted
from autopipe.pipeline.counted import Watch
from autopipe.processes.contained import Child
from autopipe.processes.link import wait_for_readable
from tests.building.test_prepared_checks import Recording, suspects

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def emitted(monkeypatch):
    monkeypatch.setattr(counted, "INTERVAL", 0.0)
    return []


def test_kernels_and_plain_loops_are_counted(tmp_path, emitted):
    made = suspects(3)
    with PreparedChecks(Recording(), tmp_path / "plain") as checks:
        checks.prepare(made[0])
        checks.start()
        wait_for_readable([child.link for child, _ in checks._running], 60.0)  # it is done before
        for suspect in made[1:]:
            checks.prepare(suspect)
        checks.start()
        assert (checks.count_compiled(), checks.count_prepared()) == (1, 3)
        progress = CompileProgress(Watch("build", emitted.append), checks, {"": 4, "x": 2})
        with Child(lambda: str) as child:
            for label in ("", "x"):
                child.tell(label)
                assert not progress.wait(label, child)
                assert child.answer() == label
    counts = [(event.done, event.total, event.message) for event in emitted]
    assert {counts[0], counts[-1]} <= {(done, 8, "functions compiled") for done in (4, 6)}


def test_what_takes_too_long_is_overdue(tmp_path, emitted):
    progress = CompileProgress(
        Watch("build", emitted.append), PreparedChecks(Recording(), None), {}
    )
    with Child(lambda: lambda _: time.sleep(60), seconds=0.1) as child:
        child.tell()
        assert progress.wait("", child)
    assert not emitted  # there is nothing to count


def test_a_count_is_there_before_anything_is_compiled(emitted, monkeypatch):
    monkeypatch.setattr(compile_progress, "INTERVAL", 0.01)
    progress = CompileProgress(
        Watch("build", emitted.append), PreparedChecks(Recording(), None), {"": 4}
    )
    with Child(lambda: lambda _: time.sleep(0.8)) as child:
        child.tell()
        assert not progress.wait("", child)
    assert [(one.done, one.total, one.remaining) for one in emitted] == [(0, 4, None)]
