"""The tables of a store, and files that have others."""

import sqlite3
from contextlib import closing

import pytest

from autopipe.errors import StoreError
from autopipe.records.merge import add_claims
from autopipe.records.salvage import find_salvage_path
from autopipe.records.schema import VERSION
from autopipe.records.store import RecordStore
from tests.records.written import HERE, MODULE, record


@pytest.mark.fault("L2")
def test_a_damaged_store_keeps_who_measured(tmp_path):
    path = tmp_path / "records.sqlite"
    with RecordStore.open(path, pytest.fail) as store:
        store.add(HERE, MODULE, [record()])
        add_claims(store, [store.every()[0]._replace(record=record((2.0,)))])
    find_salvage_path(path).write_bytes(path.read_bytes())
    path.unlink()
    with RecordStore.open(path, lambda _: None) as store:
        assert [each.here for each in store.every()] == [True, False]


def test_a_file_without_tables_yet_has_no_records(tmp_path):
    path = tmp_path / "records.sqlite"
    path.touch()
    with RecordStore.view(path) as store:
        assert store.every() == []
    assert path.stat().st_size == 0


@pytest.mark.fault("C14")
@pytest.mark.parametrize("tables", [VERSION - 1, VERSION + 1])
@pytest.mark.parametrize(
    "how", [lambda path: RecordStore.open(path, pytest.fail), RecordStore.view]
)
def test_a_store_of_another_release_is_left_alone(tmp_path, how, tables):
    path = tmp_path / "records.sqlite"
    with RecordStore.open(path, pytest.fail) as store:
        store.add(HERE, MODULE, [record()])
        store.connection.execute(f"PRAGMA user_version = {tables}")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=rf"has version {tables} .* reads version {VERSION}$"):
        how(path)
    assert path.read_bytes()[100:] == before[100:]  # the header counts who opened it
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == tables


def test_a_database_of_something_else_is_an_error_in_words(tmp_path):
    path = tmp_path / "records.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE songs (name)")
    with pytest.raises(StoreError, match="has version 0 of the tables"):
        RecordStore.open(path, pytest.fail)
