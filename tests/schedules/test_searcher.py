import os
import signal
import time

import pytest

from autopipe.schedules import searcher as module
from autopipe.schedules.engine import Known, Problem
from autopipe.schedules.searcher import Arm, Searcher, SearchError
from tests.schedules.tasks import CONDITIONS, task

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

NAMES = ("good", "none", "raises", "crashes", "hangs")


class Toy:
    """Proposes numbered traces, after those that are known; or fails in the way of its task."""

    def __init__(self, what, made):
        self.what, self.made = what, made

    def propose(self, count):
        if self.what == "crashes":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.what == "hangs":
            time.sleep(60)
        self.made += count
        return [f"{number}" for number in range(self.made - count, self.made)]

    def learn(self, measured):
        assert all(isinstance(known, Known) for known in measured)


class Engine:
    name = "toy"

    def search(self, problem):
        what = NAMES[problem.task.index]
        if what == "raises":
            raise RuntimeError("no sketch fits")
        return None if what == "none" else Toy(what, len(problem.known))


@pytest.fixture
def measured():
    return []


@pytest.fixture
def searcher(measured):
    arms = [Arm("toy", Problem(task(i), None, CONDITIONS, (), 4, 0)) for i in range(len(NAMES))]
    found = Searcher({"toy": Engine}, arms, lambda _: measured)
    yield found
    found.close()


def test_proposals_go_on_where_the_last_ones_ended(searcher):
    assert searcher.propose(0, 2) == ["0", "1"]
    searcher.learn(0, [Known("0", 1.0), Known("1")])
    assert searcher.propose(0, 2) == ["2", "3"]


def test_an_engine_without_a_design_space_says_so(searcher):
    assert searcher.propose(1, 2) is None


def test_an_error_of_one_search_leaves_the_others_as_they_are(searcher):
    assert searcher.propose(0, 2) == ["0", "1"]
    with pytest.raises(SearchError, match="RuntimeError: no sketch fits"):
        searcher.propose(2, 2)
    assert searcher.propose(0, 2) == ["2", "3"]


def test_after_a_crash_the_others_begin_again_with_what_is_known(searcher, measured):
    assert searcher.propose(0, 2) == ["0", "1"]
    with pytest.raises(SearchError, match="the search was ended by SIGKILL"):
        searcher.propose(3, 2)
    measured.extend([Known("0", 1.0), Known("1")])
    assert searcher.propose(0, 2) == ["2", "3"]
    searcher.learn(3, [Known("0")])


def test_a_search_that_hangs_is_ended(searcher, monkeypatch):
    monkeypatch.setattr(module, "_DEADLINE", 0.3)
    with pytest.raises(SearchError, match=r"no answer within 0\.3 s"):
        searcher.propose(4, 2)
    assert searcher.propose(0, 1) == ["0"]


def test_an_engine_that_can_not_be_made_is_an_error_of_the_search():
    def missing():
        raise ModuleNotFoundError("No module named 'xgboost'")

    found = Searcher(
        {"toy": missing}, [Arm("toy", Problem(task(), None, CONDITIONS, (), 4, 0))], lambda _: []
    )
    with pytest.raises(SearchError, match="xgboost"):
        found.propose(0, 1)
    found.close()
