"""Stores and remotes as wholes: pushed, pulled, verified, swept."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from autopipe.errors import ConfigError, StoreError
from autopipe.remote import shared, sweep, transfer
from autopipe.remote.courier import DamagedError, RemoteError
from autopipe.remote.depot import Depot, open_depot
from autopipe.store.artifact import Kind
from autopipe.store.entry import Entry
from autopipe.store.gc import list_entries
from autopipe.store.store import open_store
from tests.artifacts.examples import best_record
from tests.records.test_times import TASK
from tests.remote.conftest import Inject, Machine

pytestmark = pytest.mark.usefixtures("no_leaks")

Make = Callable[[str], Machine]
DAY = 86_400


@pytest.fixture
def depot(remote: Path, tmp_path: Path, machine: Make) -> Iterator[Depot]:
    with open_depot(f"faulty://{remote}", tmp_path) as opened:
        yield opened


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "fresh"


def push(home: Path, depot: Depot, *private: str) -> transfer.Moved:
    with open_store(home) as store:
        return transfer.push_entries(store, depot, private, pytest.fail)


def pull(home: Path, depot: Depot, *private: str) -> tuple[transfer.Moved, list[str]]:
    warnings: list[str] = []
    with open_store(home) as store:
        return transfer.pull_entries(store, depot, private, warnings.append), warnings


def stages(home: Path) -> list[str]:
    with open_store(home) as store:
        return sorted(entry.action["stage"] for entry in list_entries(store).values())


def test_a_store_pushed_is_a_store_pulled(machine: Make, depot: Depot, tmp_path: Path) -> None:
    first = machine("first")
    first.run("off")
    moved = push(first.home, depot, "tune")
    assert (moved.entries, moved.known) == (2, 0)
    again = push(first.home, depot)
    assert (again.entries, again.known) == (1, 2)
    assert pull(tmp_path / "second", depot, "lower")[0] == transfer.Moved(2, 15, 0)
    assert stages(tmp_path / "second") == ["import", "tune"]
    assert pull(tmp_path / "second", depot)[0] == transfer.Moved(1, 3, 2)


@pytest.mark.fault("K3")
def test_what_a_stage_does_not_leave_is_left_out(farm: Machine, depot: Depot, home: Path) -> None:
    """Its digests fit, for whoever wrote it has made them; its files are others."""

    def look(artifact: Path) -> None:
        (artifact / "module.json").stat()

    warnings: list[str] = []
    with open_store(home) as store:
        moved = transfer.pull_entries(store, depot, (), warnings.append, {"import": look})
    assert "import" not in stages(home)
    assert moved.entries == len(stages(home)) > 0
    (warning,) = warnings
    assert "is not what stage import makes: No such file or directory; left out" in warning


@pytest.mark.fault("K3")
def test_a_run_makes_itself_what_a_stage_does_not_leave(
    farm: Machine, machine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(artifact: Path) -> None:
        raise ValueError(f"{artifact.name}\n::error ::owned")

    given = partial(transfer.bring, inspect={"import": look})
    monkeypatch.setattr(shared, "bring", lambda *rest: given(*rest[:4]))
    second = machine("second")
    second.run("read", url=f"file://{farm.remote}")
    assert "import" not in second.fetched
    (warning,) = second.warnings
    assert warning.isprintable()
    assert "is not what stage import makes" in warning


def test_a_damaged_entry_is_left_out(farm: Machine, depot: Depot, tmp_path: Path) -> None:
    path = next((farm.remote / "objects").iterdir())
    path.write_bytes(bytes(path.stat().st_size))
    moved, warnings = pull(tmp_path / "other", depot)
    assert (moved.entries, len(warnings)) == (2, 1)


def test_a_damaged_entry_here_is_not_pushed(machine: Make, depot: Depot) -> None:
    first = machine("first")
    first.run("off")
    for path in first.home.glob("objects/*/text"):
        path.chmod(0o600)
        path.write_text("abc")
    warnings: list[str] = []
    with open_store(first.home) as store:
        moved = transfer.push_entries(store, depot, (), warnings.append)
    assert (moved.entries, len(warnings)) == (2, 1)


def test_what_is_not_a_digest_is_somebody_elses(farm: Machine, depot: Depot) -> None:
    (farm.remote / "actions" / "README.json").write_text("{}")
    (farm.remote / "actions" / "..json").write_text("{}")
    assert len(depot.actions()) == 3


@pytest.mark.parametrize("how", ["down", "hang"])
def test_a_command_says_where_it_failed(
    farm: Machine, inject: Inject, depot: Depot, how: str
) -> None:
    inject(f"ls actions {how}")
    depot.courier._timeout = 0.5
    with pytest.raises(RemoteError, match=r"connect|no answer"):
        push(farm.home, depot)


def test_a_command_names_the_remote(tmp_path: Path) -> None:
    with (
        pytest.raises(StoreError, match=f"^file://{tmp_path}/nowhere: nothing was pushed there"),
        open_depot(f"{tmp_path}/nowhere", tmp_path) as depot,
    ):
        depot.check(make=False)


def test_a_url_with_a_password_is_refused_and_not_repeated(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match="the storage's own environment") as caught,
        open_depot("s3://key:xyzzy@bucket", tmp_path),
    ):
        pass
    assert "xyzzy" not in str(caught.value)


def test_verify_deletes_what_is_damaged(farm: Machine, depot: Depot, machine: Make) -> None:
    assert sweep.verify_depot(depot) == (3, [])
    first, second = sorted((farm.remote / "objects").iterdir())[:2]
    first.write_bytes(b"")
    second.unlink()
    sound, damaged = sweep.verify_depot(depot)
    assert (sound, len(damaged)) == (1, 2)
    assert all(text.endswith("; deleted") for text in damaged)
    assert sweep.verify_depot(depot) == (1, [])
    with open_store(farm.home) as store:
        assert transfer.push_entries(store, depot, ["benchmark"], pytest.fail).entries == 2
    assert sweep.verify_depot(depot) == (3, [])


@pytest.mark.fault("C3")
def test_a_push_does_not_take_over_what_nobody_has_read(farm: Machine, depot: Depot) -> None:
    """Objects that no record names may be anything."""
    for path in (farm.remote / "actions").iterdir():
        path.unlink()
    for path in (farm.remote / "objects").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    with open_store(farm.home) as store:
        assert transfer.push_entries(store, depot, ["benchmark"], pytest.fail).entries == 3
    assert sweep.verify_depot(depot) == (3, [])


def age(path: Path, days: float, now: float) -> None:
    os.utime(path, (now - days * DAY,) * 2)


@pytest.fixture
def now(remote: Path) -> float:
    """The time on the remote's clock, which is years off."""
    return 4e9


@pytest.mark.fault("C13")
def test_gc_deletes_what_is_old_by_the_clock_of_the_remote(
    farm: Machine, depot: Depot, now: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Depot, "now", lambda _: now)
    old, *young = sorted((farm.remote / "actions").iterdir())
    gone = depot.entry(old.stem).digest
    (farm.remote / "objects" / ("0" * 64)).write_text("an upload that is going on")
    (farm.remote / "objects" / ("1" * 64)).write_text("an upload that was given up")
    (farm.remote / "objects" / "2.part").write_text("half of one")
    for path in farm.remote.rglob("*/*"):
        age(path, 2, now)
    age(old, 31, now)
    age(farm.remote / "objects" / ("0" * 64), 0.5, now)
    assert sweep.sweep_depot(depot, keep_days=30) == sweep.SweptDepot(1, 2)
    assert sorted((farm.remote / "actions").iterdir()) == young
    left = {path.name for path in (farm.remote / "objects").iterdir()}
    assert len(left) == 3
    assert "0" * 64 in left
    assert gone not in left
    assert sweep.verify_depot(depot) == (2, [])


def test_the_clock_of_a_remote_leaves_nothing(farm: Machine, depot: Depot) -> None:
    before = sorted(farm.remote.rglob("*"))
    assert depot.now() > 0
    assert sorted(farm.remote.rglob("*")) == before


class Forger:
    """A remote whose records claim a time."""

    def __init__(self, seconds: float) -> None:
        self.line = best_record("0f", seconds=(seconds,)).line

    def fetch(self, entry: Entry, out: Path) -> None:
        (out / "records.jsonl").write_text(f"{self.line}\n")


@pytest.mark.fault("L5")
@pytest.mark.parametrize(("seconds", "taken"), [(1e-6, True), (0.9e-6, False), (1e-15, False)])
def test_records_with_a_time_that_can_not_be_are_damaged(
    tmp_path: Path, seconds: float, *, taken: bool
) -> None:
    facts = {"target": {"kind": "llvm", "num_cores": 2}, "device": {}}
    action = {"stage": "tune", "facts": facts, "inputs": {"tasks": "f" * 64}}
    with open_store(tmp_path / "store") as store:
        tasks = store.object("f" * 64)
        tasks.mkdir(parents=True)
        (tasks / "tasks.json").write_text(f"[{TASK.model_dump_json()}]")
        entry = Entry(action, Kind.RECORDS, "0" * 64, (), 0)
        forger = cast("Depot", Forger(seconds))
        if taken:
            assert transfer.bring(store, forger, entry, "a" * 64, {}).kind is Kind.RECORDS
            return
        with pytest.raises(DamagedError, match=r"task task0: .* which no processor"):
            transfer.bring(store, forger, entry, "a" * 64, {})
        assert store.lookup("a" * 64, pytest.fail) is None
