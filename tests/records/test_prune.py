"""What goes when records are pruned."""

from datetime import UTC, datetime

import pytest

from autopipe.records.merge import add_claims
from autopipe.records.prune import PruneRules, prune_records
from autopipe.records.store import RecordStore, StoredRecord
from tests.records.test_lines import found
from tests.records.written import HERE

OTHER = HERE._replace(versions='{"tvm":"0.26"}')
OLD = "2020-01-01T00:00:00+00:00"
EVERY = [
    found((1.0,), schedule="a"),
    found((2.0,), schedule="b"),
    found((0.1,), schedule="wrong", wrong="x"),
    found((), schedule="c"),
    found((3.0,), schedule="old", measured=OLD),
    found((9.0,), schedule="other", here=OTHER),
    found((1.0,), schedule="d", workload="0a", measured="?"),
]


@pytest.fixture
def store(tmp_path):
    with RecordStore.open(tmp_path / "records.sqlite", pytest.fail) as store:
        add_claims(store, [each._replace(wrong=None) for each in EVERY])
        for each in store.every("schedule = 'wrong'"):
            store.quarantine(StoredRecord(each.id, each.record), "x")
        yield store


@pytest.mark.parametrize(
    ("rules", "gone"),
    [
        (PruneRules(), ""), (PruneRules(failed=True), "c"), (PruneRules(keep_best=1), "b c old"),
        (PruneRules(keep_best=2), "c old"), (PruneRules(versions={"tvm": "0.27"}), "other"),
        (PruneRules(before=datetime(2021, 1, 1, tzinfo=UTC)), "old d"),
        (PruneRules(before=datetime(2021, 1, 1, tzinfo=UTC), failed=True), "c old d"),
    ],
)  # fmt: skip
def test_what_goes(store, rules, gone):
    before = [each.record.schedule for each in store.every()]
    would = prune_records(store, rules, dry_run=True)
    assert [each.record.schedule for each in store.every()] == before
    assert would.total() == len(gone.split())
    assert prune_records(store, rules, dry_run=False) == would
    left = [each.record.schedule for each in store.every()]
    assert left == [each for each in before if each not in gone.split()]
    assert [each.wrong for each in store.every() if each.record.schedule == "wrong"] == ["x"]
    assert prune_records(store, rules, dry_run=False).total() == 0


def test_a_workload_without_records_goes_too(store):
    prune_records(store, PruneRules(before=datetime(2021, 1, 1, tzinfo=UTC)), dry_run=False)
    (count,) = store.connection.execute("SELECT COUNT(*) FROM workloads").fetchone()
    assert count == 1
