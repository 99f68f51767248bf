"""Kills at each statement and each operation on files, and limits of file sizes, for records."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from autopipe.records.about import WorkloadInfo
from autopipe.records.merge import merge_store
from autopipe.records.prune import PruneRules, prune_records
from autopipe.records.store import RecordStore
from tests.pipeline.crashes import Outcome, kills, limits
from tests.records.written import HERE, MODULE, record
from tests.store.test_sweeps import disk  # noqa: F401

ABOUT = WorkloadInfo(("matmul",), ("float32[9]",), ("float32[9]",), flops=1.0)
BATCH = 3


def store_at(folder: Path) -> Path:
    return folder / "records.sqlite"


def measure(folder: Path) -> None:
    """Keep two batches, and write down after each that it is kept."""
    with RecordStore.open(store_at(folder), lambda _: None) as store:
        for batch in range(2):
            times = [float(1 + batch * BATCH + i) for i in range(BATCH)]
            store.add(HERE, MODULE, [record((time,)) for time in times], ABOUT)
            with (folder / "told").open("a") as told:
                told.write("x" * BATCH)


def take_over(folder: Path) -> None:
    with RecordStore.open(store_at(folder), lambda _: None) as store:
        merge_store(store, folder / "other.sqlite")


def clear(folder: Path) -> None:
    with RecordStore.open(store_at(folder), lambda _: None) as store:
        prune_records(store, PruneRules(failed=True), dry_run=False)


def open_it(folder: Path) -> None:
    RecordStore.open(store_at(folder), lambda _: None).close()


def nothing(folder: Path) -> None: ...


def some(folder: Path) -> None:
    """Have records that are there from the beginning: some failed, one is wrong."""
    with RecordStore.open(store_at(folder), pytest.fail) as store:
        kept = [record((100.0 + i,), schedule="x" * 500) for i in range(20)]
        failed = [record((), schedule=name) for name in "ab"]
        store.add(HERE, MODULE, [*kept, *failed], ABOUT)
        store.quarantine(store.rows("00ff", MODULE, HERE)[0], "off by 1")


def two(folder: Path) -> None:
    some(folder)
    store_at(folder).rename(folder / "other.sqlite")
    with RecordStore.open(store_at(folder), pytest.fail) as store:
        store.add(HERE, MODULE, [record((7.0,))])


def damaged(folder: Path) -> None:
    """Damage the index, of which no record is a part."""
    some(folder)
    with closing(sqlite3.connect(store_at(folder))) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'by_session'"
        page = connection.execute(query).fetchone()[0]
    data = bytearray(store_at(folder).read_bytes())
    data[(page - 1) * 4096 : page * 4096] = b"\x5a" * 4096
    store_at(folder).write_bytes(data)


@dataclass(frozen=True)
class Scene:
    """What is there, what is done, and how many records there are before and after."""

    before: Callable[[Path], object]
    action: Callable[[Path], object]
    counts: tuple[int, int]
    operations: int


SCENES = {
    "measure": Scene(nothing, measure, (0, 6), 20),
    "merge": Scene(two, take_over, (1, 22), 20),
    "prune": Scene(some, clear, (22, 20), 8),
    "salvage": Scene(damaged, open_it, (22, 22), 20),
}


def check(name: str, outcome: Outcome) -> None:
    """See that what was there, and what was told to be kept, is; and that it can be done again."""
    scene, folder = SCENES[name], outcome.folder
    told = folder / "told"
    with RecordStore.open(store_at(folder), lambda _: None) as store:
        found = store.every()
        assert store.damaged == 0
    if name == "measure":
        assert len(found) % BATCH == 0
        assert len(found) >= (len(told.read_text()) if told.exists() else 0)
    assert len(found) in (scene.counts if name != "measure" else {0, 3, 6}), outcome
    if name == "salvage":
        assert len([each for each in found if each.wrong]) == 1
    if name == "measure":
        (folder / "records.sqlite").unlink()
    scene.action(folder)
    with RecordStore.view(store_at(folder)) as store:
        assert len(store.every()) == scene.counts[1]
    shutil.rmtree(folder)


@pytest.mark.fault("G10", "G11")
@pytest.mark.parametrize("name", SCENES)
def test_a_kill_at_any_statement_loses_nothing(disk: Path, name: str) -> None:  # noqa: F811
    template = disk / "template"
    template.mkdir()
    SCENES[name].before(template)
    for outcome in kills(disk, SCENES[name].action, template):
        check(name, outcome)
    assert outcome.n > SCENES[name].operations


@pytest.mark.fault("C7", "G10")
@pytest.mark.parametrize("name", SCENES)
def test_a_limit_at_any_page_is_a_line_with_a_path(disk: Path, name: str) -> None:  # noqa: F811
    template = disk / "template"
    template.mkdir()
    SCENES[name].before(template)
    outcomes = []
    for outcome in limits(disk, SCENES[name].action, template):
        assert outcome.code in {0, 5}
        assert outcome.said.startswith(str(outcome.folder) if outcome.code else ""), outcome
        check(name, outcome)
        outcomes.append(outcome)
    assert len(outcomes) > 1
