from collections.abc import Iterator
from pathlib import Path

import pytest

from autopipe.environment.facet import Facet
from autopipe.errors import StageError
from autopipe.host import copy_file
from autopipe.pipeline import counted
from autopipe.pipeline.events import Event, Progress
from autopipe.pipeline.isolate import Killed, Zygote
from autopipe.store.artifact import Kind
from tests.pipeline.fakes import FACTS, Act, Dice, Fixed, Here, Measure, Tune, Upper, demo, go, told


def test_second_run_is_all_cached(root: Path, source: Path) -> None:
    first, made = go(demo(source), root)
    assert first == ["run import", "run lower", "run tune"]
    second, served = go(demo(source), root)
    assert second == ["cached import", "cached lower", "cached tune"]
    assert served == made
    assert (served["tune"].path / "records").read_text() == "ABC" * 4
    assert served["tune"].kind is Kind.RECORDS


def test_what_is_stored_is_counted(
    root: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted, "INTERVAL", 0.0)
    monkeypatch.setattr(copy_file, "MIB", 1)
    events: list[Event] = []
    go(demo(source)[:1], root, events=events)
    counts = [(event.done, event.total) for event in events if isinstance(event, Progress)]
    assert counts == [(1, 3)]  # half of it: on the disk, not digested


def test_early_cut_off(root: Path, source: Path) -> None:
    go(demo(source), root)
    source.write_text("abc")
    assert go(demo(source), root)[0] == ["run import", "run lower", "cached tune"]


def test_renaming_the_source_runs_nothing(root: Path, source: Path) -> None:
    go(demo(source), root)
    moved = source.rename(source.with_name("other.txt"))
    assert go(demo(moved), root)[0] == ["cached import", "cached lower", "cached tune"]


def test_a_source_behind_a_link_is_read(root: Path, source: Path) -> None:
    go(demo(source), root)
    link = source.with_name("link.txt")
    link.symlink_to(source)
    assert go(demo(link), root)[0] == ["cached import", "cached lower", "cached tune"]


def test_an_unkeyed_field_runs_nothing_and_a_keyed_one_does(root: Path, source: Path) -> None:
    go(demo(source), root)
    assert go(demo(source, workers=9), root)[0][-1] == "cached tune"
    assert go(demo(source, trials=5), root)[0][-1] == "run tune"


def test_only_declared_facets_matter(root: Path, source: Path) -> None:
    go(demo(source), root)
    facts = {**FACTS, Facet.DEVICE: {"cpu": "y"}}
    assert go(demo(source), root, facts=facts)[0] == ["cached import", "cached lower", "run tune"]


def test_an_undeclared_facet_is_unreachable(root: Path) -> None:
    with pytest.raises(KeyError, match="device"):
        go([Act(do="peek")], root)


@pytest.mark.fault("G7")
def test_force_runs_a_cached_stage(root: Path, source: Path) -> None:
    go(demo(source), root)
    again, _ = go(demo(source), root, force=["lower"])
    assert again == ["cached import", "run lower", "cached tune"]


def test_forcing_a_nondeterministic_stage_runs_what_depends_on_it(root: Path) -> None:
    stages = [Dice(), Upper()]
    go(stages, root)
    assert go(stages, root, force=["import"])[0] == ["run import", "run lower"]
    assert go(stages, root)[0] == ["cached import", "cached lower"]


def test_scratch_survives_a_crash_and_force_clears_it(root: Path) -> None:
    with Zygote(preload=()) as zygote, pytest.raises(Killed):
        go([Act(do="crash_once")], root, isolate=zygote)
    assert [path.read_text() for path in root.glob("work/*/left")] == ["x"]
    _, made = go([Act(do="crash_once")], root)
    assert (made["act"].path / "text").read_text() == "resumed"
    assert not list(root.glob("work/*"))
    with Zygote(preload=()) as zygote, pytest.raises(Killed):
        go([Act(do="crash_once")], root, isolate=zygote, force=["act"])
    with Zygote(preload=()) as zygote, pytest.raises(Killed):
        go([Act(do="crash_once")], root, isolate=zygote, force=["act"])


def test_a_measurement_is_never_served_as_a_new_one(root: Path, source: Path) -> None:
    stages = [*demo(source), Measure()]
    _, made = go(stages, root)
    again, artifacts = go(stages, root)
    assert again[-1] == "skipped benchmark"
    assert artifacts == made
    assert go(stages, root, force=["benchmark"])[0][-1] == "run benchmark"
    assert go([*demo(source, trials=9), Measure()], root)[0][-1] == "run benchmark"


@pytest.mark.fault("G7")
def test_a_failed_stage_is_not_cached_and_leaves_no_scratch(root: Path) -> None:
    for _ in range(2):
        events: list[Event] = []
        with pytest.raises(RuntimeError, match="no device"):
            go([Act(do="raise", note="no device")], root, events=events)
        assert [event.event for event in events] == ["stage_started", "stage_failed"]
        assert events[-1].model_dump()["exit_code"] == 70
    assert not list(root.glob("actions/*")) + list(root.glob("work/*"))


@pytest.mark.fault("C17", "G7")
@pytest.mark.parametrize("do", ["nothing", "empty_file"])
def test_a_stage_that_writes_nothing_has_failed(root: Path, do: str) -> None:
    with pytest.raises(StageError, match="stage act ended well but wrote nothing"):
        go([Act(do=do)], root)
    assert not list(root.glob("actions/*")) + list(root.glob("objects/*"))


@pytest.mark.fault("C18")
def test_an_artifact_with_a_link_in_it_is_refused(root: Path) -> None:
    with pytest.raises(StageError, match="link: neither a regular file nor a directory"):
        go([Act(do="link")], root)
    assert not list(root.glob("actions/*"))


@pytest.mark.fault("B16", "G6")
def test_a_source_that_changes_meanwhile_is_not_remembered(root: Path, source: Path) -> None:
    stages = [Act(do="change_source", note=str(source))]
    with pytest.raises(StageError, match=r"model\.txt changed while stage 'act' read it"):
        go(stages, root)
    assert not list(root.glob("actions/*"))


def test_a_run_until_a_stage_stops_there(root: Path, source: Path) -> None:
    assert go(demo(source), root, until="lower")[0] == ["run import", "run lower"]


def test_a_second_run_takes_what_it_has_waited_for(root: Path, source: Path) -> None:
    """The lock is taken, the entry appears, the lock is freed: a hit, and nothing is run."""
    from autopipe.pipeline.executor import Executor
    from autopipe.pipeline.plan import build_plan
    from autopipe.store.store import Store, open_store

    events: list[Event] = []
    plan = build_plan([Act(do="write")])

    class Late:
        """Has somebody else finish the action while this run waits for the lock."""

        def __init__(self) -> None:
            self.calls = 0

        def run(self, *_: object) -> str:
            raise AssertionError("run twice")

    with open_store(root) as store:
        lock = Store.lock

        def contended(self: Store, key: str, waiting: object) -> object:
            Store.lock = lock  # type: ignore[method-assign]
            Executor(store, Fixed(), Here(), lambda _: None).run(plan)
            return lock(self, key, waiting)  # type: ignore[arg-type]

        Store.lock = contended  # type: ignore[method-assign,assignment]
        try:
            Executor(store, Fixed(), Late(), events.append).run(plan)
        finally:
            Store.lock = lock  # type: ignore[method-assign]
    assert told(events) == ["cached act"]


def test_finished_stages_tell_seconds_and_summary(root: Path) -> None:
    events: list[Event] = []
    go([Act(do="write")], root, events=events)
    finished = events[-1].model_dump()
    assert finished["summary"] == "write"
    assert 0 <= finished["seconds"] < 60
    assert Tune.version == 1


@pytest.fixture(autouse=True)
def _dice() -> Iterator[None]:
    yield
    Dice.rolls.clear()
