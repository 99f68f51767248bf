"""Lock files on the disk: each whole or not at all, whatever happens while they are written."""

import pytest

from autopipe.errors import LockError
from autopipe.lock.document import Lock
from autopipe.lock.file import read_lock, write_lock
from autopipe.lock.recognize import find_records_path, lock_of
from autopipe.lock.text import format_lock as text_of
from tests.lock.examples import LOCK
from tests.pipeline.crashes import errors, kills

NEW = LOCK.model_copy(update={"pipeline": "new"})


def old_one(folder):
    write_lock(folder / "demo.lock", text_of(LOCK), "old\n")


def new_one(folder):
    write_lock(folder / "demo.lock", text_of(NEW), "new\n")


def kept(folder):
    """Return what is there; a lock that is not whole is refused here."""
    return read_lock(folder / "demo.lock"), (folder / "demo.records.jsonl").read_text()


@pytest.fixture
def template(tmp_path):
    folder = tmp_path / "template"
    folder.mkdir()
    old_one(folder)
    return folder


@pytest.mark.fault("C1", "G1")
def test_a_kill_at_any_operation_leaves_the_old_or_the_new(tmp_path, template):
    seen: list[tuple[Lock, str]] = []
    for outcome in kills(tmp_path / "sweep", new_one, template):
        seen.append(kept(outcome.folder))
        new_one(outcome.folder)
        assert kept(outcome.folder) == (NEW, "new\n")
        assert sorted(path.name for path in outcome.folder.iterdir()) == [
            "demo.lock", "demo.records.jsonl",
        ]  # fmt: skip
    order = [(LOCK, "old\n"), (LOCK, "new\n"), (NEW, "new\n")]
    assert [state for state in order if state in seen] == order
    assert all(state in order for state in seen)


@pytest.mark.fault("C7", "C19")
def test_an_error_at_any_operation_is_one_line_and_leaves_the_old_or_the_new(tmp_path, template):
    failed = 0
    for outcome in errors(tmp_path / "sweep", new_one, template):
        assert outcome.code in {0, 5}, outcome.said
        failed += outcome.code == 5
        lock, _ = kept(outcome.folder)
        assert lock in ([LOCK, NEW] if outcome.code else [NEW])
    assert failed


def test_a_pipeline_lends_its_name(tmp_path):
    lock = lock_of(tmp_path / "resnet50.v2.yaml")
    assert lock.name == "resnet50.v2.lock"
    assert find_records_path(lock).name == "resnet50.v2.records.jsonl"


def test_without_records_those_of_before_are_taken_away(template):
    write_lock(template / "demo.lock", text_of(LOCK), None)
    assert not (template / "demo.records.jsonl").exists()


@pytest.mark.fault("C20")
def test_what_can_not_be_read_is_named(tmp_path):
    path = tmp_path / "demo.lock"
    with pytest.raises(LockError, match=r"demo\.lock: No such file"):
        read_lock(path)
    path.write_bytes(b"version: 1\n\xff\n")
    with pytest.raises(LockError, match=r"demo\.lock:2: not UTF-8"):
        read_lock(path)
