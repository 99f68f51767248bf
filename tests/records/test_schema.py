"""Stores of older and newer releases."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from autopipe.errors import StoreError
from autopipe.records.merge import take
from autopipe.records.salvage import unfinished
from autopipe.records.schema import VERSION
from autopipe.records.store import RecordStore
from autopipe.store.canonical import seal
from tests.records.written import HERE, MODULE, record

OLD = Path(__file__).parents[1] / "golden" / "records-v0.sql"
"""Two names of one workload: two trials of the one, a wrong schedule of the other."""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "records.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(OLD.read_text())
    return path


def version(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


def check(store):
    first, failed, wrong = store.every()
    assert first.record.seconds == (3e-6, 2e-6, 4e-6)
    assert failed.record.error == "crashed"
    assert wrong.wrong == "off by 1"
    assert len({(each.record.workload, each.identity) for each in store.every()}) == 1
    assert first.about.ops == ("T_add",)
    assert first.about.inputs == ("float32[8,4]",) * 2
    assert store.damaged == 0


@pytest.mark.fault("C14")
def test_the_first_tables_are_taken_over(path):
    with RecordStore.open(path, pytest.fail) as store:
        check(store)
    with RecordStore.open(path, pytest.fail) as store:
        check(store)
    assert version(path) == VERSION


def older(path, *records, tables=1):
    """Make a store as it was before its tables told who measured; 2: which worker of a farm."""
    with RecordStore.open(path, pytest.fail) as store:
        store.add(HERE, MODULE, records)
        store.connection.execute("ALTER TABLE records DROP COLUMN worker")
        store.connection.execute("DROP TABLE doubted")
        if tables == 1:
            store.connection.execute("ALTER TABLE records DROP COLUMN here")
        store.connection.execute(f"PRAGMA user_version = {tables}")


def test_what_a_worker_measured_counts_until_it_is_doubted(tmp_path):
    path = tmp_path / "records.sqlite"
    older(path, record((1.0,)), tables=2)
    with RecordStore.open(path, pytest.fail) as store:
        store.add(HERE, MODULE, [record((2.0,))], worker="a")
        store.add(HERE, MODULE, [record((3.0,))], worker="b")
        rows = store.rows("00ff", MODULE, HERE)
        assert [row.record.seconds for row in rows] == [(1.0,), (2.0,), (3.0,)]
        assert store.workers(row.id for row in rows) == {2: "a", 3: "b"}
        assert [row.id for row in store.rows("00ff", MODULE, HERE, 2)] == [3]
        store.doubt("a", "it lies")
        assert [row.id for row in store.rows("00ff", MODULE, HERE)] == [1, 3]
        elsewhere = replace(HERE, device="another")
        assert [each.id for each in store.near("00ff", None, elsewhere)] == [1, 3]  # nor a seed
    with RecordStore.open(path, pytest.fail) as store:
        assert store.doubted() == {"a": "it lies"}


@pytest.mark.fault("L2")
@pytest.mark.parametrize(
    "look", [lambda path: RecordStore.open(path, pytest.fail), RecordStore.view]
)
def test_records_of_unknown_origin_become_claims(tmp_path, look):
    path = tmp_path / "records" / "records.sqlite"
    path.parent.mkdir()
    older(path, *(record(session=name) for name in ("tuned", "going", "locked", "other")))
    (tmp_path / "actions").mkdir()
    write(tmp_path / "work/0/session.json", {"session": "going"})
    for name, facts in (("tuned", ["device"]), ("locked", [])):
        entry = {"action": {"stage": "tune", "facts": {each: {} for each in facts}}, "digest": name}
        (tmp_path / f"actions/{name}.json").write_bytes(seal(entry))
        write(tmp_path / f"objects/{name}/tuning.json", {"session": name})
    (tmp_path / "actions/torn.json").write_text("{")
    with look(path) as store:
        own = {each.record.session for each in store.every() if each.here}
    assert own == {"tuned", "going"}


def test_a_damaged_store_keeps_who_measured(tmp_path):
    path = tmp_path / "records.sqlite"
    with RecordStore.open(path, pytest.fail) as store:
        store.add(HERE, MODULE, [record()])
        take(store, [replace(store.every()[0], record=record((2.0,)))])
    unfinished(path).write_bytes(path.read_bytes())
    path.unlink()
    with RecordStore.open(path, lambda _: None) as store:
        assert [each.here for each in store.every()] == [True, False]


def write(path, document):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


def test_looking_at_an_old_store_does_not_change_it(path):
    before = path.read_bytes()
    with RecordStore.view(path) as store:
        check(store)
    assert path.read_bytes() == before


@pytest.mark.fault("C14")
@pytest.mark.parametrize(
    "how", [lambda path: RecordStore.open(path, pytest.fail), RecordStore.view]
)
def test_a_store_of_a_later_release_is_left_alone(path, how):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=rf"has version {VERSION + 1} .* knows {VERSION}"):
        how(path)
    assert path.read_bytes()[100:] == before[100:]  # the header counts who opened it
    assert version(path) == VERSION + 1


def test_a_damaged_old_store_is_saved_too(path):
    data = bytearray(path.read_bytes())
    data[-4096:] = b"\x5a" * 4096
    path.write_bytes(data)
    said: list[str] = []
    with RecordStore.open(path, said.append) as store:
        assert len(store.every()) + store.damaged <= 3
    assert "was damaged" in said[0]
    assert version(path) == VERSION


def test_a_database_of_something_else_is_an_error_in_words(tmp_path):
    path = tmp_path / "records.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE songs (name)")
    with pytest.raises(StoreError, match="no such table"):
        RecordStore.open(path, pytest.fail)
