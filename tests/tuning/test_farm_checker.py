"""Verdicts of a farm's workers on a schedule that this machine can not run."""

from dataclasses import asdict

import pytest

from autopipe.farm.wire import WorkAnswer
from autopipe.safety.job import Piece
from autopipe.safety.verdict import Checked, Finding
from autopipe.tuning.runners.farm_checker import FarmChecker, same
from autopipe.tuning.runners.opinions import Doubts


class Asked:
    """Workers that have said this."""

    def __init__(self, **said):
        self.doubts, self.workers = Doubts(), len(said)
        self._said = {
            name: WorkAnswer("d", checked={"found": asdict(Checked(finding))} if finding else {})
            for name, finding in said.items()
        }

    def check(self, _piece, *, loops=False):
        assert not loops
        return self._said


PIECE = Piece("checking", "a", None, "ansor", "direct", "[]")  # type: ignore[arg-type]
RIGHT, WRONG = Finding.RIGHT, Finding.WRONG


@pytest.mark.fault("O17")
@pytest.mark.parametrize(
    ("said", "found", "odd"),
    [
        ({"a": RIGHT, "b": RIGHT}, RIGHT, set()),
        ({"a": RIGHT, "b": WRONG}, WRONG, set()),
        ({"a": RIGHT, "b": WRONG, "c": WRONG}, WRONG, {"a"}),
        ({"a": RIGHT, "b": WRONG, "c": RIGHT}, RIGHT, {"b"}),
        ({"a": RIGHT, "b": None, "c": RIGHT}, RIGHT, set()),
    ],
)
def test_a_schedule_that_one_worker_calls_right_does_not_win_by_that(said, found, odd):
    workers = Asked(**said)
    (outcome,) = FarmChecker(workers).check([PIECE])
    assert isinstance(outcome, Checked)
    assert outcome.finding == found
    assert set(workers.doubts.why) == odd
    assert same(workers.check(None)) == (len(set(said.values())) == 1)


def test_a_verdict_of_one_worker_is_not_remembered():
    assert FarmChecker(Asked(a=RIGHT)).alone
    assert not FarmChecker(Asked(a=RIGHT, b=RIGHT)).alone
