import json
import math
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from autopipe.records.about import WorkloadInfo
from autopipe.records.store import RecordStore, Tally
from tests.records.written import HERE, MODULE, record

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "records.sqlite"


@pytest.fixture
def warned():
    return []


@pytest.fixture
def reopen(path, warned):
    return lambda: RecordStore.open(path, warned.append)


def filled(path, count=400):
    with RecordStore.open(path, pytest.fail) as store:
        store.add(HERE, MODULE, [record((1.0 + i,)) for i in range(count)])


def test_what_was_added_is_there_after_opening_again(reopen):
    first, second = record((2.0, 3.0)), record((), error="building crashed: SIGSEGV")
    with reopen() as store:
        store.add(HERE, MODULE, [first, second])
    with reopen() as store:
        assert [row.record for row in store.rows("00ff", MODULE, HERE)] == [first, second]


def test_the_best_is_the_least_median(reopen):
    with reopen() as store:
        store.add(HERE, MODULE, [record((2.0, 2.0, 0.1)), record((1.5, 1.5, 9.0)), record((3.0,))])
        assert store.best("00ff", MODULE, HERE).record.seconds == (1.5, 1.5, 9.0)


@pytest.mark.fault("D5")
@pytest.mark.parametrize("value", [math.nan, 0.0, -1.0, math.inf, 1e10, 9e-11])
def test_a_time_that_can_not_be_true_never_wins(reopen, value):
    with reopen() as store:
        store.add(HERE, MODULE, [record((value,)), record((value, 0.5, 0.5))])
        assert store.best("00ff", MODULE, HERE) is None
        store.add(HERE, MODULE, [record((5.0,))])
        assert store.best("00ff", MODULE, HERE).record.seconds == (5.0,)


BUSY = WorkloadInfo(("matmul",), ("float32[9]",), ("float32[9]",), flops=4e9)


@pytest.mark.fault("D5")
@pytest.mark.parametrize(
    ("target", "least"),
    [('{"num_cores":2}', 5e-5), ("no JSON", 1e-4), ('{"kind":"cuda"}', 4e-9)],
)
def test_a_time_that_no_processor_reaches_is_a_failed_trial(reopen, target, least):
    here = HERE._replace(target=target)
    with reopen() as store:
        store.add(here, MODULE, [record((least * 0.9, 1.0)), record((least * 1.1,))], BUSY)
        assert store.best("00ff", MODULE, here).record.seconds == (least * 1.1,)
        failed = store.rows("00ff", MODULE, here)[0].record
        assert "which no processor reaches" in failed.error
        assert failed.median == math.inf


@pytest.mark.fault("D17")
def test_a_coarse_time_wins_only_where_there_is_no_other(reopen):
    with reopen() as store:
        store.add(HERE, MODULE, [record((1.0,), cut=True)])
        assert store.best("00ff", MODULE, HERE).record.cut
        store.add(HERE, MODULE, [record((2.0,))])
        assert not store.best("00ff", MODULE, HERE).record.cut


@pytest.mark.fault("D6")
@pytest.mark.parametrize("field", ["target", "versions", "device"])
def test_a_record_of_another_platform_is_not_seen(reopen, field):
    with reopen() as store:
        store.add(HERE, MODULE, [record()])
        assert store.best("00ff", MODULE, HERE._replace(**{field: "other"})) is None
        assert store.damaged == 0
        assert store.best("00ff", MODULE, HERE) is not None


def test_workloads_with_the_same_hash_are_not_mixed_up(reopen):
    with reopen() as store:
        store.add(HERE, MODULE, [record((1.0,))])
        store.add(HERE, '{"root":2}', [record((2.0,))])
        assert store.best("00ff", '{"root":2}', HERE).record.seconds == (2.0,)
        assert len(store.rows("00ff", MODULE, HERE)) == 1


@pytest.mark.fault("E1")
def test_a_quarantined_record_is_not_seen_again(reopen):
    with reopen() as store:
        store.add(HERE, MODULE, [record((1.0,)), record((2.0,))])
        store.quarantine(store.best("00ff", MODULE, HERE), "wrong answer")
    with reopen() as store:
        assert store.best("00ff", MODULE, HERE).record.seconds == (2.0,)


def test_trials_are_counted_by_session_and_workload(reopen):
    with reopen() as store:
        store.add(HERE, MODULE, [record(), record(()), record(session="other")])
        store.add(HERE, MODULE, [record(workload="0a")])
        assert store.trials("s") == {"00ff": Tally(2, 1), "0a": Tally(1, 0)}
        assert store.trials("new") == {}


@pytest.mark.fault("D4", "G11")
@pytest.mark.parametrize(
    "change",
    [
        "seconds = '[0.001]'", "seconds = 'nan'", "seconds = '[1.0'", "schedule = ''", "cut = 1",
        "target = target || ' '", "engine = 'x'", "schedule = hex(zeroblob(500000))",
        "schedule = CAST(x'ff22ff' AS TEXT)", "error = 'x'", "checksum = ''",
    ],
)  # fmt: skip
def test_a_damaged_row_is_skipped_and_counted(reopen, path, change):
    with reopen() as store:
        store.add(HERE, MODULE, [record((1.0,)), record((2.0,))])
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE records SET {change} WHERE id = 1")
    connection.close()
    with reopen() as store:
        assert store.best("00ff", MODULE, HERE).record.seconds == (2.0,)
        assert store.damaged == (0 if change.startswith("target") else 1)
        assert len(store.every()) == 1
        assert store.kept_aside() == 1
    with reopen() as store:
        assert (len(store.every()), store.damaged, store.kept_aside()) == (1, 0, 1)


@pytest.mark.fault("D4", "G11")
def test_a_file_that_is_no_database_is_moved_aside(reopen, path, warned):
    path.write_bytes(b"not a database" * 1000)
    with reopen() as store:
        store.add(HERE, MODULE, [record()])
    assert "0 records were saved" in warned[0]
    assert path.with_name("records.sqlite.damaged-1").read_bytes().startswith(b"not a database")
    with reopen() as store:
        assert len(store.rows("00ff", MODULE, HERE)) == 1
    assert len(warned) == 1


@pytest.mark.fault("D4", "G11")
@pytest.mark.parametrize("part", [0.3, 0.7, 0.9])
def test_a_damaged_page_costs_the_records_on_it(reopen, path, warned, part):
    filled(path)
    data = bytearray(path.read_bytes())
    start = int(len(data) * part)
    data[start : start + 4096] = b"\x5a" * 4096
    path.write_bytes(data)
    with reopen() as store:
        rows = store.rows("00ff", MODULE, HERE)
    assert 200 < len(rows) < 400 or (not warned and len(rows) == 400)
    assert all(row.record.seconds[0] == int(row.record.seconds[0]) for row in rows)


@pytest.mark.fault("D4", "G11")
def test_a_truncated_file_keeps_its_head(reopen, path, warned):
    filled(path)
    path.write_bytes(path.read_bytes()[: -20 * 4096])
    with reopen() as store:
        assert 0 < len(store.rows("00ff", MODULE, HERE)) < 400
    assert "was damaged" in warned[0]


def test_a_folder_in_its_place_is_moved_aside(reopen, path, warned):
    path.mkdir()
    with reopen() as store:
        assert store.rows("00ff", MODULE, HERE) == []
    assert "was damaged" in warned[0]
    assert path.is_file()


WRITER = """
import sys
from pathlib import Path
from tests.records.written import HERE, MODULE, record
from autopipe.records.store import RecordStore
for i in range(int(sys.argv[3])):
    with RecordStore.open(Path(sys.argv[1]), sys.exit) as store:
        store.add(HERE, MODULE, [record(session=sys.argv[2], seconds=(float(i + 1),))] * 5)
    print(i, flush=True)
"""


def writer(path, name, batches):
    command = [sys.executable, "-c", WRITER, path, name, str(batches)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.fault("C10", "G10")
def test_many_processes_share_one_store_and_kills_lose_nothing(path):
    """What a writer said is done is there, and a batch is there whole or not at all."""
    writers = [writer(path, str(n), 10**6 if n < 4 else 10) for n in range(8)]
    for killed in writers[:4]:
        for _ in range(3):
            killed.stdout.readline()
        killed.kill()
    said = [len(each.communicate(timeout=60)[0].split()) for each in writers]
    assert [each.returncode for each in writers] == [-9] * 4 + [0] * 4
    with RecordStore.open(path, pytest.fail) as store:
        tallies = {n: store.trials(str(n))["00ff"].trials for n in range(8)}
        assert store.damaged == 0
    assert [tallies[n] for n in range(4, 8)] == [50] * 4
    for number in range(4):
        assert tallies[number] >= 5 * (3 + said[number])
        assert tallies[number] % 5 == 0


@pytest.mark.fault("G11")
def test_the_checksum_covers_every_field_and_the_platform():
    base = record()
    changed = [base._replace(**{name: "x"}) for name in base._fields]
    sums = {other.checksum(HERE) for other in [base, *changed]}
    sums |= {base.checksum(HERE._replace(**{name: "x"})) for name in HERE._fields}
    assert len(sums) == 1 + len(base._fields) + len(HERE._fields)
    assert json.dumps(sorted(sums))


@pytest.mark.fault("D6")
def test_what_was_fast_elsewhere_is_near_and_never_the_best(reopen):
    likeness = "same ops"
    about = WorkloadInfo(("matmul",), (), (), 0.0, likeness)
    target, device = HERE._replace(target="t"), HERE._replace(device="d")
    with reopen() as store:
        store.add(target, MODULE, [record((1e-9,), schedule="of another target")])
        store.add(device, MODULE, [record((2.0,), schedule="of another device"), record(())])
        other = record((3.0,), workload="ee", schedule="of other loops")
        store.add(HERE, '{"root":9}', [other], about)
        store.add(HERE, MODULE, [record((9.0,), schedule="of here")])
        wrong = record((1e-9,), schedule="wrong")
        store.add(device, MODULE, [wrong, record((math.nan,)), record((1e-12,))])
        (row,) = [r for r in store.rows("00ff", MODULE, device) if r.record.schedule == "wrong"]
        store.quarantine(row, "off by 1")
        assert store.best("00ff", MODULE, HERE).record.schedule == "of here"
        near = [each.record.schedule for each in store.near("00ff", likeness, HERE)]
        assert near == ["of other loops", "of another device", "of another target"]
        assert "of other loops" not in [
            each.record.schedule for each in store.near("00ff", None, HERE)
        ]
