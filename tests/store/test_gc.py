import hashlib
import os
import time
from pathlib import Path

import pytest

from autopipe.errors import ConfigError
from autopipe.pipeline.isolate import Zygote
from autopipe.store import files
from autopipe.store.gc import SweptStore, collect_garbage, list_entries, parse_size, verify_store
from autopipe.store.store import Store, open_store
from tests.pipeline.fakes import Act, go


def make(root: Path, *notes: str) -> None:
    for note in notes:
        go([Act(do="write", note=note)], root)


def age(root: Path, note: str, days: float) -> None:
    """Have an entry, and its object, look as if last used then."""
    then = time.time() - days * 86_400
    with open_store(root) as store:
        for key, entry in list_entries(store).items():
            if entry.action["params"]["note"] == note:
                os.utime(root / "actions" / f"{key}.json", (then, then))


def sweep(root: Path, days: float = 30, max_size: int | None = None) -> SweptStore:
    with open_store(root) as store:
        return collect_garbage(store, keep_days=days, max_size=max_size)


def is_cached(root: Path, note: str) -> bool:
    return go([Act(do="write", note=note)], root)[0] == ["cached act"]


def test_what_was_not_used_for_long_goes(root: Path) -> None:
    make(root, "old", "young")
    age(root, "old", 31)
    assert sweep(root) == SweptStore(entries=1, bytes=3)
    assert len(list(root.glob("objects/*"))) == 1
    assert is_cached(root, "young")
    assert not is_cached(root, "old")


def test_being_served_keeps_an_entry_young(root: Path) -> None:
    make(root, "old")
    age(root, "old", 31)
    assert is_cached(root, "old")
    assert sweep(root) == SweptStore(0, 0)


def test_the_least_used_go_first(root: Path) -> None:
    make(root, "a" * 100, "b" * 100, "c" * 100)
    age(root, "a" * 100, 3)
    age(root, "c" * 100, 2)
    assert sweep(root, max_size=200) == SweptStore(entries=1, bytes=100)
    assert is_cached(root, "b" * 100)
    assert is_cached(root, "c" * 100)


def test_a_shared_object_stays_while_one_entry_needs_it(root: Path) -> None:
    class Other(Act, frozen=True):
        more: int = 1

    make(root, "same")
    age(root, "same", 31)
    go([Other(do="write", note="same")], root)
    assert sweep(root, max_size=4) == SweptStore(entries=1, bytes=0)
    make(root, "same")
    assert sweep(root, max_size=4) == SweptStore(entries=0, bytes=0)
    assert go([Other(do="write", note="same")], root)[0] == ["cached act"]


@pytest.mark.fault("C2")
def test_an_object_no_record_names_goes(root: Path) -> None:
    """As a crash between object and record leaves it."""
    make(root, "x")
    next(root.glob("actions/*")).unlink()
    assert sweep(root) == SweptStore(entries=0, bytes=1)


@pytest.mark.fault("C13")
def test_an_entry_from_the_future_is_fresh(root: Path) -> None:
    make(root, "x")
    age(root, "x", -3650)
    assert sweep(root) == SweptStore(0, 0)


@pytest.mark.fault("C11", "G5")
def test_what_a_live_run_uses_stays(root: Path) -> None:
    make(root, "used", "unused")
    age(root, "used", 31)
    age(root, "unused", 31)
    with open_store(root) as running:
        key = next(
            k for k, e in list_entries(running).items() if e.action["params"]["note"] == "used"
        )
        artifact = running.lookup(key, pytest.fail)
        assert artifact is not None
        orphan = running.out()
        (orphan / "text").write_text("orphan")
        made = running.commit("f" * 64, {"stage": "act"}, artifact.kind, orphan)
        (root / "actions" / f"{'f' * 64}.json").unlink()
        assert sweep(root, days=0) == SweptStore(entries=1, bytes=6)
        assert artifact.path.exists()
        assert made.path.exists()


@pytest.mark.fault("C13", "G5")
def test_what_a_run_uses_stays_if_the_clock_went_back_since_it_began(root: Path) -> None:
    make(root, "x")
    with open_store(root) as running:
        began = time.time() + 365 * 86_400
        os.utime(running.tmp.with_suffix(".lease"), (began, began))
        assert sweep(root, days=0) == SweptStore(0, 0)
    assert sweep(root, days=0) == SweptStore(1, 1)


def test_old_leftovers_go_and_young_ones_stay(root: Path) -> None:
    with Zygote(preload=()) as zygote, pytest.raises(Exception, match="SIGSEGV"):
        go([Act(do="segfault")], root, isolate=zygote)
    make(root, "x")
    (record,) = root.glob("actions/*")
    record.write_text("damaged")
    make(root, "x")
    places = ("work", "logs", "quarantine", "locks")
    before = {place: len(list(root.glob(f"{place}/*"))) for place in places}
    assert before == {"work": 1, "logs": 2, "quarantine": 1, "locks": 3}
    sweep(root)
    assert before == {place: len(list(root.glob(f"{place}/*"))) for place in places}
    for path in root.glob("*/*"):
        os.utime(path, (0, 0))
    sweep(root)
    assert [path.name for path in root.glob("locks/*")] == ["gate"]
    assert not [path for place in places[:3] for path in root.glob(f"{place}/*")]


@pytest.mark.fault("C11", "G5")
def test_scratch_of_a_running_stage_stays(root: Path) -> None:
    key = "a" * 64
    with open_store(root) as store, store.lock(key, pytest.fail):
        work = store.work(key)
        os.utime(work, (0, 0))
        sweep(root)
        assert work.exists()


def test_a_damaged_record_goes(root: Path) -> None:
    make(root, "x")
    next(root.glob("actions/*")).write_text("damaged")
    assert sweep(root) == SweptStore(entries=1, bytes=1)


def check(root: Path) -> tuple[int, list[str]]:
    with open_store(root) as store:
        return verify_store(store)


def test_verify_reads_what_looks_unchanged(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that forgets: the bytes differ, and the fingerprint does not."""
    make(root, "x", "y")
    (text,) = (path for path in root.glob("objects/*/text") if path.read_text() == "x")
    digest = hashlib.sha256(b"x").hexdigest()
    text.chmod(0o600)
    text.write_text("z")
    time.sleep(0.03)
    with monkeypatch.context() as forget:
        forget.setattr(files, "sha256", lambda *_: digest)
        assert is_cached(root, "x")
    assert is_cached(root, "x")
    assert check(root) == (1, [f"{text.parent}: damaged"])
    assert list(root.glob("quarantine/*"))
    assert not is_cached(root, "x")
    assert check(root) == (2, [])


@pytest.mark.parametrize(("text", "size"), [("0", 0), ("500M", 500 << 20), ("20G", 20 << 30)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1", "1.5G", "10GB", "٣"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a size; write 500M or 20G"):
        parse_size(text)


def test_stores_are_values(root: Path) -> None:
    with open_store(root) as store:
        assert isinstance(store, Store)
        with pytest.raises(AttributeError):
            store.root = Path()  # type: ignore[misc]
