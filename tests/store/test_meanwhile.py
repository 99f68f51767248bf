"""What others do to a store while a run uses it: at each event of the run."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from autopipe.errors import StoreError
from autopipe.pipeline.events import Event, StageFinished
from autopipe.store.gc import collect_garbage
from autopipe.store.locks import Patience
from autopipe.store.store import open_store
from tests.pipeline.fakes import demo, go
from tests.store.test_sweeps import Packed

EVENTS = 7
"""Of a run of three stages, one of which tells its progress."""

YEAR = 31_557_600 * 10**9


class Meddler(list[Event]):
    """Does something as soon as so many events have happened."""

    def __init__(self, moment: int, deed: Callable[[], object]) -> None:
        super().__init__()
        self.moment, self.deed = moment, deed

    def append(self, event: Event) -> None:
        super().append(event)
        if len(self) == self.moment:
            self.deed()


def check(source: Path, root: Path) -> None:
    """See that a run now ends right, whatever has happened before."""
    _, made = go(demo(source), root)
    assert (made["tune"].path / "records").read_text() == "ABC" * 4
    assert list(root.glob("tmp/*")) == []


@pytest.mark.fault("C11")
@pytest.mark.parametrize("moment", range(1, EVENTS + 1))
def test_a_store_that_is_deleted_is_a_line_or_made_again(
    source: Path, tmp_path: Path, moment: int
) -> None:
    root = tmp_path / "store"
    events = Meddler(moment, lambda: shutil.rmtree(root))
    said = f"{root}/"
    try:
        go(demo(source), root, events=events, isolate=Packed())
    except StoreError as error:
        said = str(error)
    assert said.startswith(f"{root}/")
    assert "\n" not in said
    assert len(events) >= moment
    check(source, root)


@pytest.mark.fault("C11", "G5")
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("moment", range(1, EVENTS + 1))
def test_gc_takes_nothing_from_a_run(
    source: Path, tmp_path: Path, moment: int, *, warm: bool
) -> None:
    root = tmp_path / "store"
    if warm:
        go(demo(source)[:2], root)

    def sweep() -> None:
        with open_store(root, Patience(pytest.fail, 0)) as store:
            collect_garbage(store, keep_days=0)

    events = Meddler(moment, sweep)
    _, made = go(demo(source), root, events=events, isolate=Packed())
    assert (made["tune"].path / "records").read_text() == "ABC" * 4
    assert all(artifact.path.exists() for artifact in made.values())
    check(source, root)


@pytest.mark.fault("C13", "G5")
@pytest.mark.parametrize("years", [-1, 10])
@pytest.mark.parametrize("moment", range(1, EVENTS + 1))
def test_a_clock_that_jumps_changes_no_result(
    source: Path, tmp_path: Path, moment: int, years: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"

    def jump() -> None:
        """Set the clock, and have somebody clear the store by it."""
        now = time.time_ns() + years * YEAR
        monkeypatch.setattr(time, "time_ns", lambda: now)
        monkeypatch.setattr(time, "time", lambda: now / 1e9)
        with open_store(root) as store:
            collect_garbage(store, keep_days=30)

    events = Meddler(moment, jump)
    go(demo(source), root, events=events, isolate=Packed())
    assert all(event.seconds >= 0 for event in events if isinstance(event, StageFinished))
    assert [line.split()[0] for line in go(demo(source), root)[0]] == ["cached"] * 3
    check(source, root)
