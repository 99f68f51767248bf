from collections.abc import Iterable
from pathlib import Path

import pytest

from autopipe.environment.facet import Facet, Facts
from autopipe.pipeline.explain import list_changes
from autopipe.pipeline.forecast import Outlook, forecast
from autopipe.pipeline.history import History
from autopipe.pipeline.plan import build_plan
from autopipe.pipeline.stage import Stage
from autopipe.store.store import open_store
from tests.pipeline.fakes import FACTS, FILE, Fixed, Measure, Upper, demo, go


class Unknown(Fixed):
    def known(self, facets: Iterable[Facet]) -> Facts | None:
        return None if set(facets) else {}


def look(
    stages: list[Stage],
    root: Path,
    environment: Fixed | None = None,
    force: Iterable[str] = (),
    file: Path = FILE,
) -> dict[str, Outlook]:
    with open_store(root) as store:
        history = History.of(store, file, file.stem)
        outlooks = forecast(
            build_plan(stages), environment or Fixed(), history, force=set(force), warn=pytest.fail
        )
    return {outlook.stage: outlook for outlook in outlooks}


def summary(outlooks: dict[str, Outlook]) -> list[tuple[str, ...]]:
    return [(each.state, *each.why) for each in outlooks.values()]


def test_nothing_was_ever_run(source: Path, root: Path) -> None:
    assert summary(look(demo(source), root)) == [
        ("run", "never run before"),
        ("run", "after import"),
        ("run", "after lower"),
    ]
    assert not list(root.glob("objects/*"))


def test_everything_is_there(source: Path, root: Path) -> None:
    go(demo(source), root)
    assert summary(look(demo(source), root)) == [("cached",)] * 3


def test_the_last_run_is_compared_with_and_not_the_most_similar(source: Path, root: Path) -> None:
    go(demo(source, trials=64), root)
    go(demo(source, trials=7), root, facts={**FACTS, Facet.DEVICE: {"cpu": "y"}})
    outlooks = look(demo(source, trials=128), root)
    assert outlooks["tune"].why == (
        "facts.device.cpu changed from y to x",
        "params.trials changed from 7 to 128",
    )
    assert outlooks["tune"].key is not None
    assert go(demo(source, trials=64), root)[0][-1] == "cached tune"
    assert look(demo(source, trials=128), root)["tune"].why == (
        "params.trials changed from 64 to 128",
    )


def test_another_pipeline_file_is_not_compared_with(source: Path, root: Path) -> None:
    go(demo(source, trials=64), root, file=Path("other.yaml"))
    outlooks = look(demo(source, trials=128), root)
    assert [outlook.state for outlook in outlooks.values()] == ["cached", "cached", "run"]
    assert outlooks["tune"].why == ("never run before",)
    again = look(demo(source, trials=128), root, file=Path("other.yaml"))
    assert again["tune"].why == ("params.trials changed from 64 to 128",)


def test_what_the_store_has_lost_is_said(source: Path, root: Path) -> None:
    go(demo(source, trials=64), root)
    for record in root.glob("actions/*.json"):
        record.unlink()
    gone = "what it did last is no longer in the store"
    assert look(demo(source, trials=128), root)["import"].why == (gone,)


def test_a_source_changed_and_a_parameter_after_it(source: Path, root: Path) -> None:
    go(demo(source), root)
    source.write_text("abc")
    outlooks = look(demo(source, trials=5), root)
    assert outlooks["import"].why == ("sources.path changed from b5d4045c3f46 to ba7816bf8f01",)
    assert outlooks["lower"].why == ("if the result of import changes, else cached",)
    assert outlooks["tune"].why == ("after lower", "params.trials changed from 4 to 5")
    assert outlooks["tune"].key is None


def test_forced_and_uncached_stages(source: Path, root: Path) -> None:
    stages = [*demo(source), Measure()]
    go(stages, root)
    assert summary(look(stages, root, force=["lower"])) == [
        ("cached",),
        ("run", "forced"),
        ("run", "if the result of lower changes, else cached"),
        ("run", "if the result of tune changes, else skipped"),
    ]
    assert look(stages, root)["benchmark"].state == "skipped"


def test_a_lost_result(source: Path, root: Path) -> None:
    _, made = go(demo(source), root)
    made["tune"].path.rename(root / "elsewhere")
    assert look(demo(source), root)["tune"].why == ("its result is gone",)


def test_an_environment_nobody_has_looked_at(source: Path, root: Path) -> None:
    outlooks = look(demo(source), root, Unknown())
    assert outlooks["lower"].why == ("the environment is not examined yet",)
    assert outlooks["lower"].action is None


@pytest.mark.fault("C15")
def test_a_version_and_a_fact_changed(source: Path, root: Path) -> None:
    class Newer(Upper, frozen=True):
        version = 2

    go(demo(source), root)
    read, _, tune = demo(source)
    facts = {**FACTS, Facet.TVM: {"tvm": "2"}}
    why = look([read, Newer(), tune], root, Fixed(facts))["lower"].why
    assert why == ("facts.tvm.tvm changed from 1 to 2", "version changed from 1 to 2")


def test_changes_name_what_is_new_and_what_is_gone() -> None:
    old = {"version": 1, "inputs": {"lower": "a" * 64}, "params": {"trials": 4, "x": {}}}
    new = {"version": 1, "inputs": {"lower": "b" * 64}, "params": {"seed": 0, "x": {"y": None}}}
    assert list_changes(old, new) == [
        "the result of lower changed",
        "params.seed is new: 0",
        "params.trials was 4 and is gone",
        "params.x was {} and is gone",
        "params.x.y is new: null",
    ]
    assert list_changes(old, old) == []
