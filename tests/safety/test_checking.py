"""Children that check schedules check several, and what one of them spoils is asked again."""

import os

import pytest

from autopipe.processes.contained import Failed
from autopipe.safety import checking
from autopipe.safety.checking import Checker
from autopipe.safety.job import Piece
from autopipe.safety.verdict import Checked, Finding
from tests.schedules.engines.test_static import dense
from tests.schedules.tasks import CONDITIONS
from tests.schedules.tensors import module_of

RIGHT, WRONG = (str(finding) for finding in (Finding.RIGHT, Finding.WRONG))


@pytest.fixture
def check(monkeypatch):
    """Return what checks pieces by a function of their names, which are called tasks."""
    module = module_of(*dense())

    def check_names(answer, names):
        monkeypatch.setattr(checking, "do", lambda piece, _: answer(piece.task))
        pieces = [Piece("checking", name, module, scheduled=module) for name in names]
        return Checker(CONDITIONS).check(pieces)

    return check_names


def test_a_child_checks_several(check):
    outcomes = check(lambda _: {"finding": RIGHT, "reason": str(os.getpid())}, "abcdefgh")
    assert {one.finding for one in outcomes} == {Finding.RIGHT}
    assert len({one.reason for one in outcomes}) <= CONDITIONS.hardware.cores


def test_what_a_spoiled_child_finds_is_checked_again(check):
    before = []

    def spoiled(name):
        before.append(name)
        return {"finding": RIGHT if len(before) == 1 or name == "a" else WRONG}

    assert [one.finding for one in check(spoiled, "abcdefgh")] == [Finding.RIGHT] * 8


def test_what_is_wrong_in_a_fresh_child_is_wrong(check):
    outcomes = check(lambda name: {"finding": WRONG if name == "c" else RIGHT}, "abcdef")
    assert [one.finding.value for one in outcomes] == [RIGHT, RIGHT, WRONG, RIGHT, RIGHT, RIGHT]


def test_a_crash_ends_no_other_check(check):
    def crash(name):
        if name == "d":
            os.abort()
        return {"finding": RIGHT}

    outcomes = check(crash, "abcdef")
    assert [isinstance(one, Failed) for one in outcomes] == [name == "d" for name in "abcdef"]
    assert all(isinstance(one, Checked) for place, one in enumerate(outcomes) if place != 3)
