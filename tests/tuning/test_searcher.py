import os
import signal
import time

import pytest

from autopipe.processes import contained
from autopipe.processes.contained import Failed
from autopipe.schedules.engines.engine import MeasuredSchedule, Problem
from autopipe.schedules.policy import Contender
from autopipe.tuning.search.searcher import OutOfTime, Searcher, make_search_key
from tests.schedules.tasks import CONDITIONS
from tests.tuning.states import state

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

TOY = Contender("toy", "direct")
NAMES = ("good", "none", "raises", "crashes", "hangs", "hungers", "learns badly", "crashes once")


TASKS = [state(index) for index in range(len(NAMES))]
PROBLEMS = {
    make_search_key(each, TOY): Problem(each.task, None, CONDITIONS, (), 4, 0) for each in TASKS  # type: ignore[arg-type]
}  # fmt: skip


class Toy:
    """Proposes numbered traces, after those that are known; or fails in the way of its task."""

    def __init__(self, what, made):
        self.what, self.made = what, made

    def propose(self, count):
        if self.what == "crashes":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.what == "hangs":
            time.sleep(60)
        if self.what == "hungers":
            raise MemoryError
        if self.what == "crashes once" and not self.made:
            os.kill(os.getpid(), signal.SIGSEGV)
        self.made += count
        return [f"{number}" for number in range(self.made - count, self.made)]

    def learn(self, measured):
        assert all(isinstance(known, MeasuredSchedule) for known in measured)
        if self.what == "learns badly":
            raise ValueError("nothing learned")


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


def make(measured):
    return Searcher({"toy": Engine}, PROBLEMS, lambda *_: measured)


@pytest.fixture
def searcher(measured):
    found = make(measured)
    yield found
    found.close()


def test_proposals_go_on_where_the_last_ones_ended(searcher):
    assert searcher.propose(TASKS[0], TOY, 2) == ["0", "1"]
    searcher.learn(TASKS[0], TOY, [MeasuredSchedule("0", 1.0), MeasuredSchedule("1")])
    assert searcher.propose(TASKS[0], TOY, 2) == ["2", "3"]


def test_nothing_is_busy_once_all_searches_have_answered(searcher):
    searcher.begin(TASKS[0], TOY, 2)
    searcher.begin(TASKS[3], TOY, 2)
    searcher.wait_until_idle()
    assert [process.link for process in searcher._processes] == [None]
    assert searcher.propose(TASKS[0], TOY, 2) == ["0", "1"]
    with pytest.raises(Failed, match="killed by SIGKILL"):
        searcher.propose(TASKS[3], TOY, 2)
    assert searcher.propose(TASKS[0], TOY, 2) == ["0", "1"], "it begins again in the next process"


def test_an_engine_without_a_design_space_says_so(searcher):
    assert searcher.propose(TASKS[1], TOY, 2) is None


def test_an_error_of_one_search_leaves_the_others_as_they_are(searcher):
    assert searcher.propose(TASKS[0], TOY, 2) == ["0", "1"]
    with pytest.raises(Failed, match="RuntimeError: no sketch fits"):
        searcher.propose(TASKS[2], TOY, 2)
    assert searcher.propose(TASKS[0], TOY, 2) == ["2", "3"]


def test_after_a_crash_the_others_begin_again_with_what_is_known(searcher, measured):
    assert searcher.propose(TASKS[0], TOY, 2) == ["0", "1"]
    with pytest.raises(Failed, match="killed by SIGKILL"):
        searcher.propose(TASKS[3], TOY, 2)
    measured.extend([MeasuredSchedule("0", 1.0), MeasuredSchedule("1")])
    assert searcher.propose(TASKS[0], TOY, 2) == ["2", "3"]
    searcher.learn(TASKS[3], TOY, [MeasuredSchedule("0")])


@pytest.mark.parametrize(
    ("arm", "how"),
    [
        (2, "RuntimeError: no sketch fits"),
        (3, "killed by SIGKILL"),
        (4, r"no answer within 0\.3 s"),
        (5, "out of memory"),
    ],
    ids=lambda value: NAMES[value] if isinstance(value, int) else "",
)
def test_a_search_that_fails_twice_is_over_and_the_others_go_on(monkeypatch, measured, arm, how):
    monkeypatch.setattr(contained, "SECONDS", 0.3 if NAMES[arm] == "hangs" else 60.0)
    found = make(measured)
    with pytest.raises(Failed, match=how):
        found.propose(TASKS[arm], TOY, 2)
    found._processes[0]._child.seconds = 60.0
    assert found.propose(TASKS[0], TOY, 1) == ["0"]
    found.close()


def test_a_search_is_ended_with_the_time_of_the_run_and_not_to_blame_for_it(measured):
    left = iter([60.0, 0.3, 0.0])
    found = Searcher({"toy": Engine}, PROBLEMS, lambda *_: measured, left=lambda: next(left))
    assert found.propose(TASKS[0], TOY, 1) == ["0"]
    with pytest.raises(OutOfTime):
        found.propose(TASKS[4], TOY, 2)
    found.close()


def test_a_search_that_fails_once_begins_again_with_what_is_known(measured):
    """What is known grows between the attempts, as `known` is asked each time."""
    counts = iter([[], [MeasuredSchedule("0", 1.0)]])
    found = Searcher({"toy": Engine}, PROBLEMS, lambda *_: next(counts))
    assert found.propose(TASKS[7], TOY, 2) == ["1", "2"]
    found.close()


def test_results_that_a_search_chokes_on_once_are_told_again(searcher):
    assert searcher.propose(TASKS[6], TOY, 1) == ["0"]
    searcher.learn(TASKS[6], TOY, [MeasuredSchedule("0", 1.0)])
    assert searcher.propose(TASKS[6], TOY, 1) == ["0"], "it has begun again"
    searcher.learn(TASKS[6], TOY, [MeasuredSchedule("0", 1.0)])
    with pytest.raises(Failed, match="ValueError: nothing learned"):
        searcher.propose(TASKS[6], TOY, 1)


def test_tasks_of_two_processes_propose_at_a_time_and_one_that_crashes_costs_no_other(measured):
    found = Searcher({"toy": Engine}, PROBLEMS, lambda *_: measured, process_count=2)
    crashes, neighbour, other = TASKS[3], TASKS[5], TASKS[0]
    assert found.width == 2
    assert found.propose(other, TOY, 2) == ["0", "1"]
    for task in (crashes, neighbour, other):
        found.begin(task, TOY, 2)
    assert found.propose(other, TOY, 2) == ["2", "3"]
    with pytest.raises(Failed, match="out of memory"):
        found.propose(neighbour, TOY, 2)
    with pytest.raises(Failed, match="killed by SIGKILL"):
        found.propose(crashes, TOY, 2)
    found.learn(other, TOY, [MeasuredSchedule("2", 1.0)])
    assert found.propose(other, TOY, 1) == ["4"], "it has not begun again"
    measured.append(MeasuredSchedule("0", 1.0))
    assert found.propose(TASKS[7], TOY, 1) == ["1"], "it is in the process that crashed"
    found.close()


def test_an_engine_that_can_not_be_made_is_an_error_of_the_search():
    def missing():
        raise ModuleNotFoundError("No module named 'xgboost'")

    found = Searcher({"toy": missing}, PROBLEMS, lambda *_: [])
    with pytest.raises(Failed, match="xgboost"):
        found.propose(TASKS[0], TOY, 1)
    found.close()
