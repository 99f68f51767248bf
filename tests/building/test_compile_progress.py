"""What a build has compiled is counted while its children compile."""

import pytest

from autopipe.building.compile_progress import CompileProgress
from autopipe.building.prepared_checks import PreparedChecks
from autopipe.pipeline import counted
from autopipe.pipeline.counted import Watch
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
        assert (checks.count_compiled(), checks.count_prepared()) == (1, 3)
        progress = CompileProgress(Watch("build", emitted.append), checks, {"": 4, "x": 3})
        checks.start()
        wait_for_readable([checks._running[1][0].link], 60.0)
        for answers in ({}, {"": 0.5}, {"": 0.5}, {"": 1.0, "x": 0.4}, {"": {}, "x": 0.7}):
            progress.count(answers)
    counts = [(event.done, event.total, event.message) for event in emitted]
    assert counts == [(2 + done, 9, "functions compiled") for done in (0, 2, 5, 6)]


def test_a_count_is_there_before_anything_is_compiled(emitted):
    progress = CompileProgress(
        Watch("build", emitted.append), PreparedChecks(Recording(), None), {"": 4}
    )
    progress.count({})
    assert [(one.done, one.total, one.remaining) for one in emitted] == [(0, 4, None)]
