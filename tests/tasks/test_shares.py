"""How much of the time was tuned."""

import pytest

from autopipe.tasks.shares import Proof, Shares, compute_shares
from autopipe.tasks.task import Task
from tests.lock.test_records import task as one


def task(index: int, share: float, calls: int = 1, dropped: str | None = None) -> Task:
    return one(index, f"{index}f", dropped).model_copy(update={"share": share, "calls": calls})


@pytest.mark.fault("L6")
def test_shares_are_of_time() -> None:
    tasks = [task(0, 0.5, calls=3), task(1, 0.5), task(2, 0.3, dropped="small")]
    proofs = {
        "0f": Proof(1.0, searched=False, steady=True),
        "1f": Proof(1.0, searched=True, steady=False),
    }
    assert compute_shares(tasks, proofs) == Shares(searched=0.25, measured=1.0, steady=0.75)


@pytest.mark.fault("L3")
def test_what_nobody_measured_here_weighs_what_is_estimated() -> None:
    tasks = [task(0, 0.2), task(1, 0.8)]
    assert compute_shares(
        tasks, {"0f": Proof(1e-3, searched=True, steady=True)}
    ).measured == pytest.approx(0.2)
    assert compute_shares(tasks, {}) == Shares(0.0, 0.0, 0.0)
    assert compute_shares([], {}) == Shares(0.0, 0.0, 0.0)


def test_almost_all_is_not_told_as_all() -> None:
    told = Shares(0.9996, 1.0, 0.0).format_line()
    assert told == "of the time 99% searched, 100% measured, 0% steady"
