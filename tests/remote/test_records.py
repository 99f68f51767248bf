"""Tuning records that machines share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from autopipe.errors import StoreError
from autopipe.records.merge import Taken
from autopipe.records.store import RecordStore
from autopipe.remote import records
from autopipe.remote.depot import Depot, open_depot
from tests.records.written import HERE, MODULE, record

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def depot(remote: Path, tmp_path: Path) -> Iterator[Depot]:
    with open_depot(str(remote), tmp_path) as opened:
        yield opened


def store(tmp_path: Path, name: str) -> RecordStore:
    return RecordStore.open(tmp_path / f"{name}.sqlite", pytest.fail)


def seconds(opened: RecordStore) -> list[float]:
    return sorted(each.record.median for each in opened.every())


def test_records_of_many_machines_come_together(tmp_path: Path, depot: Depot) -> None:
    with store(tmp_path, "one") as one, store(tmp_path, "two") as two:
        one.add(HERE, MODULE, [record((1e-3,))])
        two.add(HERE._replace(device="other"), MODULE, [record((2e-3,)), record((3e-3,))])
        assert records.push_records(one, depot, pytest.fail) == Taken(1, 0)
        assert records.push_records(two, depot, pytest.fail) == Taken(2, 0)
        assert records.push_records(two, depot, pytest.fail) == Taken(0, 2)
        assert records.pull_records(one, depot, pytest.fail) == Taken(2, 1)
        assert records.pull_records(one, depot, pytest.fail) == Taken(0, 3)
        assert seconds(one) == [1e-3, 2e-3, 3e-3]
        best = one.best(record((1e-3,)).workload, MODULE, HERE)
        assert best is not None
        assert best.record.median == 1e-3


def test_pushes_at_the_same_time_lose_nothing(
    tmp_path: Path, depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has looked before the other wrote; both bring what both have."""
    with store(tmp_path, "one") as one, store(tmp_path, "two") as two:
        one.add(HERE, MODULE, [record((1e-3,)), record((2e-3,))])
        two.add(HERE, MODULE, [record((2e-3,)), record((3e-3,))])
        with monkeypatch.context() as context:
            context.setattr(Depot, "records", lambda _: {})
            assert records.push_records(one, depot, pytest.fail) == Taken(2, 0)
            assert records.push_records(two, depot, pytest.fail) == Taken(2, 0)
        with store(tmp_path, "three") as three:
            assert records.pull_records(three, depot, pytest.fail).added == 3
            assert seconds(three) == [1e-3, 2e-3, 3e-3]


@pytest.mark.fault("K2")
def test_a_schedule_that_another_calls_wrong_stays(tmp_path: Path, depot: Depot) -> None:
    with store(tmp_path, "one") as one, store(tmp_path, "two") as two:
        one.add(HERE, MODULE, [record((1e-3,))])
        records.push_records(one, depot, pytest.fail)
        records.pull_records(two, depot, pytest.fail)
        workload = record((1e-3,)).workload
        one.quarantine(one.rows(workload, MODULE, HERE)[0], "computes something else")
        assert records.push_records(one, depot, pytest.fail).added == 1
        records.pull_records(two, depot, pytest.fail)
        assert [each.wrong for each in two.every()] == [None]


@pytest.mark.fault("G3", "G11")
def test_a_damaged_file_costs_itself(tmp_path: Path, remote: Path, depot: Depot) -> None:
    warnings: list[str] = []
    with store(tmp_path, "one") as one, store(tmp_path, "two") as two:
        one.add(HERE, MODULE, [record((1e-3,))])
        records.push_records(one, depot, pytest.fail)
        (file,) = (remote / "records").iterdir()
        file.write_bytes(file.read_bytes()[:-9])
        (remote / "records" / "notes.txt").write_text("somebody else's")
        assert records.pull_records(two, depot, warnings.append) == Taken(0, 0)
        assert records.push_records(one, depot, warnings.append).added == 1
    assert warnings == [f"records {file.name[:16]} are damaged; left out"] * 2


def test_there_must_be_a_remote_to_pull_from(tmp_path: Path, remote: Path) -> None:
    with (
        store(tmp_path, "one") as one,
        pytest.raises(StoreError, match=f"file://{remote}: nothing was pushed there yet"),
        open_depot(str(remote), tmp_path) as depot,
    ):
        records.pull_records(one, depot, pytest.fail)
