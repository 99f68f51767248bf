"""Disks that are full, and stores that can not be written."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from autopipe.errors import StoreError
from autopipe.records import connection
from autopipe.records.connection import wrap_store_errors
from autopipe.records.store import RecordStore
from tests.records.written import HERE, MODULE, record

ROOT = Path(__file__).parents[2]
FILL = """
import resource, sys
from pathlib import Path
from tests.records.written import HERE, MODULE, record
from autopipe.errors import StoreError
from autopipe.records.store import RecordStore
limit = int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
done = 0
try:
    with RecordStore.open(Path(sys.argv[1]), sys.exit) as store:
        for done in range(10_000):
            store.add(HERE, MODULE, [record((1.0 + done,), schedule="x" * 2000)])
except StoreError as error:
    print(done, error)
"""


def fill(path, limit):
    """Write records until that fails; return how many were reported as written, and the error."""
    command = [sys.executable, "-c", FILL, path, str(limit)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    count, _, said = done.stdout.partition(" ")
    return int(count), said.strip()


def check(path, count):
    with RecordStore.open(path, pytest.fail) as store:
        assert [row.record.seconds for row in store.rows("00ff", MODULE, HERE)] == [
            (1.0 + i,) for i in range(count)
        ]
        store.add(HERE, MODULE, [record()])


@pytest.mark.fault("C7", "G10")
@pytest.mark.parametrize("limit", [100_000, 600_000])
def test_a_full_disk_is_an_error_in_words_and_loses_nothing(tmp_path, limit):
    path = tmp_path / "records.sqlite"
    count, said = fill(path, limit)
    assert said.startswith(f"{path}: ")
    assert re.search("no space is left|is the disk full", said)
    check(path, count)


@pytest.fixture
def disk(tmp_path):
    """Give a disk of half a megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing may be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.fault("C7", "G10")
def test_a_small_disk_that_is_full_loses_nothing(disk, tmp_path):
    count, said = fill(disk / "records.sqlite", 0)
    assert re.search("no space is left|is the disk full", said)
    assert count > 10
    for file in disk.iterdir():
        shutil.copy(file, tmp_path)
    check(tmp_path / "records.sqlite", count)


def test_a_disk_that_is_read_only_can_be_looked_at(disk):
    path = disk / "records.sqlite"
    with RecordStore.open(path, pytest.fail) as store:
        store.add(HERE, MODULE, [record((2.0,))])
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with RecordStore.view(path) as store:
        assert [found.record.seconds for found in store.every()] == [(2.0,)]
    with pytest.raises(StoreError):
        RecordStore.open(path, pytest.fail)


def test_a_store_that_is_there_can_be_looked_at_where_nothing_can_be_written(tmp_path):
    path = tmp_path / "records.sqlite"
    with RecordStore.open(path, pytest.fail) as store:
        store.add(HERE, MODULE, [record((1.0,)), record((2.0,))])
        store.connection.execute("UPDATE records SET engine = 'x' WHERE id = 1")
        store.connection.commit()
    before = path.read_bytes()
    with RecordStore.view(path) as store:
        assert [found.record.seconds for found in store.every()] == [(2.0,)]
        assert (store.damaged, store.kept_aside()) == (1, 0)
        with pytest.raises(StoreError, match="cannot be written here"):
            store.add(HERE, MODULE, [record()])
    assert path.read_bytes() == before


def test_looking_at_what_is_not_there_says_so(tmp_path):
    with pytest.raises(StoreError, match="there are no tuning records"):
        RecordStore.view(tmp_path / "records.sqlite")
    (tmp_path / "other.sqlite").write_bytes(b"nonsense" * 1000)
    with pytest.raises(StoreError, match="not a database"):
        RecordStore.view(tmp_path / "other.sqlite")
    assert not (tmp_path / "records.sqlite").exists()


@contextmanager
def guarded(path):
    with (
        pytest.raises(StoreError, match="another process keeps it locked"),
        wrap_store_errors(path),
    ):
        yield


def test_a_lock_that_is_held_too_long_is_told_in_words(tmp_path):
    path = tmp_path / "x"
    one, two = (sqlite3.connect(path, timeout=0) for _ in range(2))
    with closing(one), closing(two), guarded(path):
        one.execute("BEGIN EXCLUSIVE")
        two.execute("BEGIN EXCLUSIVE")


def test_a_new_file_that_another_switches_over_at_once_is_waited_for():
    """SQLite refuses one of the two without waiting."""
    busy = sqlite3.OperationalError("database is locked")
    busy.sqlite_errorname = "SQLITE_BUSY"
    refusals = Mock(execute=Mock(side_effect=[busy, busy, None]))
    connection._enable_wal(refusals)
    assert refusals.execute.call_count == 3
    other = sqlite3.OperationalError("disk I/O error")
    other.sqlite_errorname = "SQLITE_IOERR"
    with pytest.raises(sqlite3.OperationalError, match="disk"):
        connection._enable_wal(Mock(execute=Mock(side_effect=other)))
