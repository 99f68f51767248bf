"""What became of the last attempt: interrupted, failed and finished are told apart."""

import json
import os
from pathlib import Path
from typing import ClassVar

import pytest

from autopipe.errors import GateError, StageError
from autopipe.pipeline.attempt import Attempt, describe_last_attempt, record_failure
from autopipe.pipeline.events import Event, StageResumed
from autopipe.pipeline.forecast import Outlook, forecast
from autopipe.pipeline.history import History
from autopipe.pipeline.isolate import Killed, Zygote
from autopipe.pipeline.plan import build_plan
from autopipe.pipeline.stage import Context
from autopipe.store.artifact import Kind
from autopipe.store.store import open_store
from tests.pipeline.fakes import FILE, Act, Fake, Fixed, go


class Spend(Fake, frozen=True):
    """Spends three trials of its budget an attempt, and ends as it is told to."""

    name: ClassVar[str] = "tune"
    produces: ClassVar[Kind] = Kind.RECORDS
    how: ClassVar[type[BaseException] | None] = None
    forced: ClassVar[list[bool]] = []

    def run(self, ctx: Context) -> str:
        note = ctx.work / "session.json"
        known = json.loads(note.read_text())["trials"] if note.exists() else 0
        note.write_text(
            json.dumps({"session": "s", "trials": known + 3, "budget": 12, "seconds": 41.4})
        )
        self.forced.append(ctx.forced)
        if self.how is not None:
            raise self.how("no candidate could be measured\nand more")
        (ctx.out / "trials").write_text(str(known + 3))
        return "spent"


@pytest.fixture
def ends(monkeypatch):
    monkeypatch.setattr(Spend, "forced", [])
    return lambda how: monkeypatch.setattr(Spend, "how", how)


def look(root: Path, *force: str) -> Outlook:
    with open_store(root) as store:
        plan = build_plan([Spend()])
        history = History.of(store, FILE, "demo")
        (found,) = forecast(plan, Fixed(), history, force=force, warn=pytest.fail)
        return found


def interrupted(root: Path, *force: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        go([Spend()], root, force=force)


@pytest.mark.fault("D1", "D2")
def test_an_interrupted_attempt_is_told_and_gone_on_with(root, ends):
    ends(KeyboardInterrupt)
    interrupted(root)
    found = look(root)
    assert (found.state, found.last) == ("run", "interrupted")
    assert found.why == ("interrupted after 3 of 12 trials, 41 s spent; the rest is spent next",)
    ends(None)
    events: list[Event] = []
    _, made = go([Spend()], root, events=events)
    assert [each.after for each in events if isinstance(each, StageResumed)] == [
        "3 of 12 trials, 41 s spent"
    ]
    assert (made["tune"].path / "trials").read_text() == "6"
    assert (look(root).state, look(root).last) == ("cached", None)


def test_a_stage_without_a_budget_is_interrupted_too(root):
    with Zygote(preload=()) as zygote, pytest.raises(Killed):
        go([Act(do="segfault")], root, isolate=zygote)
    (failed,) = (root / "logs").glob("*.failed")
    failed.unlink()  # as if the whole run had been killed
    with open_store(root) as store:
        (key,) = (path.name for path in (root / "work").iterdir())
        assert describe_last_attempt(store, "act", key) == Attempt("interrupted", "interrupted")


def test_a_failed_stage_is_told_with_its_error_until_it_succeeds(root, ends):
    ends(StageError)
    with pytest.raises(StageError):
        go([Spend()], root)
    found = look(root)
    assert (found.state, found.last) == ("run", "failed")
    (why,) = found.why
    assert why.startswith("failed on 20")
    assert why.endswith(" UTC: no candidate could be measured")
    (note,) = (root / "logs").glob("tune-*.failed")
    assert json.loads(note.read_text())["exit_code"] == 4
    ends(KeyboardInterrupt)
    interrupted(root)
    assert look(root).last == "interrupted"
    ends(None)
    go([Spend()], root)
    assert look(root).state == "cached"
    assert not list((root / "logs").glob("*.failed"))


def test_a_failure_is_never_a_result(root, ends):
    ends(GateError)
    for _ in range(2):
        with pytest.raises(GateError):
            go([Spend()], root)
    assert len(Spend.forced) == 2
    assert not list((root / "actions").iterdir())


def test_a_crash_is_a_failure_that_keeps_what_was_spent(root, ends):
    ends(Killed)
    with pytest.raises(Killed):
        go([Spend()], root)
    found = look(root)
    assert found.last == "failed"
    assert found.why[0].endswith("be measured; 3 of 12 trials, 41 s spent are kept")


def test_a_force_starts_anew_and_forced_again_goes_on(root, ends):
    go([Spend()], root)
    ends(KeyboardInterrupt)
    interrupted(root, "tune")
    assert look(root).state == "cached"
    found = look(root, "tune")
    assert found.why[0].startswith("interrupted after 3 of 12")
    assert found.why[1] == "forced"
    ends(None)
    _, made = go([Spend()], root, force=["tune"])
    assert (made["tune"].path / "trials").read_text() == "6"
    assert Spend.forced == [False, True, True]


def test_a_force_does_not_go_on_with_what_was_not_forced(root, ends):
    ends(KeyboardInterrupt)
    interrupted(root)
    ends(None)
    _, made = go([Spend()], root, force=["tune"])
    assert (made["tune"].path / "trials").read_text() == "3"


def test_one_that_is_running_is_told_with_its_process(root, ends):
    ends(KeyboardInterrupt)
    interrupted(root)
    (key,) = (path.name for path in (root / "work").iterdir())
    with open_store(root) as store, store.lock(key, lambda _: None):
        history = History.of(store, FILE, "demo")
        (found,) = forecast(build_plan([Spend()]), Fixed(), history, warn=pytest.fail)
    assert (found.last, found.why) == ("running", (f"process {os.getpid()} is running it",))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StageError("red \x1b[31m\x07\nsecond"), "red ?[31m?"),
        (ValueError("Traceback:\n  here\nValueError: a bug\n"), "ValueError: a bug"),
        (StageError(""), ""),
    ],
)
def test_an_error_is_told_in_one_harmless_line(root, error, said):
    with open_store(root) as store:
        record_failure(store, "tune", "0" * 64, error)
        found = describe_last_attempt(store, "tune", "0" * 64)
    assert found is not None
    assert found.description.endswith(f" UTC: {said}")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"key": "other"}', "\0"])
def test_a_torn_note_says_nothing(root, ends, text):
    ends(StageError)
    with pytest.raises(StageError):
        go([Spend()], root)
    (note,) = (root / "logs").glob("tune-*.failed")
    note.write_text(text)
    assert look(root).why == ("never run before",)
