"""Verdicts of a farm's workers on a schedule that this machine cannot run."""

from dataclasses import asdict

import pytest

from autopipe.errors import TargetError
from autopipe.farm.wire import WorkAnswer
from autopipe.processes.contained import Failed
from autopipe.safety.job import Piece
from autopipe.safety.verdict import Checked, Finding
from autopipe.tuning.runners.farm_checker import FarmChecker, check_answer

PIECE = Piece("checking", "a", None, "ansor", "direct", "[]")  # type: ignore[arg-type]


def checked(**answer):
    return FarmChecker(lambda pieces, _: [WorkAnswer("d", checked=answer)] * len(pieces))


@pytest.mark.parametrize("finding", [Finding.RIGHT, Finding.WRONG])
def test_a_schedule_is_what_a_worker_has_found(finding):
    outcomes = checked(found=asdict(Checked(finding))).check([PIECE, PIECE])
    assert [outcome.finding for outcome in outcomes if isinstance(outcome, Checked)] == [
        finding
    ] * 2


@pytest.mark.fault("O4")
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (WorkAnswer("d", checked={"failed": "it crashed"}), "it crashed"),
        (WorkAnswer("d", checked={"found": {"finding": "splendid"}}), "without a verdict"),
        (WorkAnswer("d", checked={}), "without a verdict"),
        ("its worker died", "no worker could do it: its worker died"),
    ],
)
def test_an_answer_without_a_verdict_condemns_as_a_failure(answer, message):
    (outcome,) = FarmChecker(lambda *_: [answer]).check([PIECE])
    assert isinstance(outcome, Failed)
    assert message in str(outcome)


def test_plain_loops_run_only_where_a_worker_says_so():
    assert checked(plain_runs=True).plain_runs(PIECE)
    assert not checked(plain_runs="yes").plain_runs(PIECE)
    assert not FarmChecker(lambda *_: ["its worker died"]).plain_runs(PIECE)


def test_a_worker_that_refuses_ends_the_run_with_its_reason():
    with pytest.raises(TargetError, match="refuse this pipeline: no AVX"):
        check_answer(WorkAnswer("d", refused="no AVX"))
