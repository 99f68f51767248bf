"""Records from elsewhere."""

import json

import pytest

from autopipe.errors import ConfigError, StoreError
from autopipe.records import lines
from autopipe.records.about import WorkloadInfo
from autopipe.records.catalog import group_by_workload
from autopipe.records.identity import digest_module
from autopipe.records.importing import import_records
from autopipe.records.merge import Taken, add_claims, add_seeds, list_seeds, merge_store
from autopipe.records.prune import PruneRules, list_prunable
from autopipe.records.seed import Seed
from autopipe.records.store import RecordStore, Tally
from tests.records.test_lines import EVERY, found
from tests.records.written import HERE, MODULE, record

SEED = Seed("key", '{"template":"t","knobs":{}}', "llvm", 1.0)


@pytest.fixture
def store(tmp_path):
    with RecordStore.open(tmp_path / "records.sqlite", pytest.fail) as store:
        yield store


@pytest.fixture
def other(tmp_path):
    path = tmp_path / "other.sqlite"
    with RecordStore.open(path, pytest.fail) as store:
        store.add(HERE, MODULE, [record((1.0,)), record((2.0,), schedule="wrong")])
        store.quarantine(store.rows("00ff", MODULE, HERE)[1], "off by 1")
        add_seeds(store, [SEED])
    return path


def test_a_record_is_taken_over_once(store):
    sound = [each for each in EVERY if each.wrong is None]
    assert add_claims(store, EVERY) == Taken(3, 0, condemned=1)
    assert add_claims(store, [*EVERY, found((8.0,))]) == Taken(1, 3, condemned=1)
    assert lines.write(store.every()) == lines.write([*sound, found((8.0,))])


def test_two_stores_become_one(store, other):
    store.add(HERE, MODULE, [record((3.0,)), record((2.0,), schedule="wrong")])
    assert merge_store(store, other) == (Taken(1, 1), 0)
    assert merge_store(store, other) == (Taken(0, 2), 0)
    assert list_seeds(store, "key") == list_seeds(store) == [SEED]
    assert list_seeds(store, "another") == []
    times = [row.record.seconds for row in store.rows("00ff", MODULE, HERE)]
    assert times == [(3.0,), (2.0,)]  # the other's are claims, and so is what it calls wrong
    assert [each.here for each in store.every()] == [True, True, False]


ABOUT = WorkloadInfo(("nn.conv2d",), (), (), 1.0, "x")


@pytest.mark.fault("L1")
def test_what_others_have_measured_is_a_claim(store):
    store.add(HERE, MODULE, [record((15e-6,))], ABOUT)
    (own,) = store.every()
    lie = ABOUT._replace(flops=1e30, likeness="y")
    claims = [
        own._replace(record=record(seconds, schedule=name, error=error), about=lie)
        for name, seconds, error in (("a", (5e-6,), None), ("b", (), "crashed"))
    ]  # fmt: skip
    assert add_claims(store, [*claims, own]) == Taken(2, 1)
    assert store.best("00ff", MODULE, HERE).record.seconds == (15e-6,)
    assert [each.here for each in store.every()] == [True, False, False]
    assert store.trials("s") == {"00ff": Tally(1, 0)}
    assert [each.record.seconds for each in store.near("00ff", None, HERE)] == [(5e-6,)]
    assert [each.record.seconds for each in lines.select_winners(store.every())] == [(15e-6,)]
    (entry,) = group_by_workload(store.every())
    assert (entry.records[0].seconds, entry.here) == ((15e-6,), (True, False, False))
    gone = list_prunable(store.every(), PruneRules(keep_best=1))
    assert [each.here for each in store.every() if each.id not in gone] == [True]


def test_what_this_store_says_of_a_workload_replaces_what_others_say(store):
    store.add(HERE, MODULE, [record()])
    (own,) = store.every()
    lie = ABOUT._replace(flops=1e30)
    elsewhere = own._replace(identity="another", about=lie)
    add_claims(store, [elsewhere, own._replace(record=record((2.0,)), about=lie)])
    assert store.best("00ff", MODULE, HERE) is not None
    module = own._replace(record=record((3.0,)), identity=digest_module("{}"), about=lie)
    add_claims(store, [module])
    store.add(HERE, "{}", [record((4.0,))], ABOUT)
    assert store.best("00ff", "{}", HERE).record.seconds == (4.0,)


def test_damaged_records_of_another_store_stay_there(store, other):
    with RecordStore.open(other, pytest.fail) as source, source.connection:
        source.connection.execute("UPDATE records SET engine = 'x' WHERE id = 1")
    assert merge_store(store, other) == (Taken(0, 0, condemned=1), 1)


def test_a_store_that_is_not_there_is_an_error(store, tmp_path):
    with pytest.raises(StoreError, match="no tuning records"):
        merge_store(store, tmp_path / "nothing.sqlite")


def test_all_of_an_import_or_none_is_written(store):
    def broken():
        yield found()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        add_claims(store, broken())
    assert store.every() == []


def test_an_export_is_imported_but_for_its_damaged_lines(store, tmp_path):
    path = tmp_path / "records.jsonl"
    text = "<<<<<<< ours\n" + lines.write(EVERY).replace('"cut":false', '"cut":true', 1)
    path.write_text(text)
    brought = import_records(store, path, None)
    assert (brought.what, brought.added, brought.known) == ("record", 2, 0)
    assert brought.left_out[f"{path}:2: its checksum is wrong"] == 1
    assert sum(brought.left_out.values()) == 3


ANSOR = {"i": [["[]", "llvm", [16], "", None, [], 0], [[], []]], "r": [[0.1], 0, 1, 1], "v": "v0.6"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (json.dumps(ANSOR), "auto_scheduler"), ('{"a": 1}\n', "neither"), ("", "no line of it"),
        ("\x89PNG\n[1]", "no line of it"),
    ],
)  # fmt: skip
def test_what_is_no_record_is_refused_with_the_reason(store, tmp_path, text, reason):
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(ConfigError, match=reason):
        import_records(store, path, None)


@pytest.mark.parametrize("target", ["llvm", "{}", "{"])
def test_a_target_that_is_none_is_refused(store, tmp_path, target):
    with pytest.raises(ConfigError, match="write it as JSON"):
        import_records(store, tmp_path, target)


def test_a_folder_that_is_no_database_is_refused(store, tmp_path):
    with pytest.raises(ConfigError, match=r"it has no database_workload\.json"):
        import_records(store, tmp_path, None)
