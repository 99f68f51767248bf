import math
from collections import Counter

import pytest

from autopipe.config.tuning import Budget
from autopipe.measure.measurement import Measurement
from autopipe.records.record import Platform
from autopipe.records.session import Session
from autopipe.records.store import Store
from autopipe.schedules.fallback import Fallback
from autopipe.schedules.planned import Planned
from autopipe.schedules.scheduler import Standing, gradient, round_robin
from autopipe.schedules.searcher import SearchError
from autopipe.schedules.tuner import Contender, Journal, Tuner, Work, batch_size
from tests.schedules.tasks import task

ANSOR = Contender("ansor", "direct")
HERE = Platform("target", "versions", "device")


class Proposals:
    """A searcher that counts up, so that each trace is the time it will be measured to take."""

    def __init__(self, limits=None, fails=(), none=()):
        self.limits, self.fails, self.none = limits or {}, fails, none
        self.made: Counter[int] = Counter()
        self.learned: Counter[int] = Counter()

    def propose(self, arm, count):
        if arm in self.fails:
            raise SearchError("the search crashed")
        if arm in self.none:
            return None
        first = self.made[arm]
        self.made[arm] = min(first + count, self.limits.get(arm, math.inf))
        return [str(1000 - number) for number in range(first, self.made[arm])]

    def learn(self, arm, measured):
        self.learned[arm] += len(measured)


class Stopwatch:
    """Takes the trace for the time; `broken` tasks never work."""

    def __init__(self, seconds=float):
        self.seconds = seconds
        self.groups = []

    def measure(self, candidates, best=math.inf):
        self.groups.append((len(candidates), best))
        for candidate in candidates:
            time = self.seconds(candidate())
            yield Measurement(error="crashed") if math.isinf(time) else Measurement((time,))


@pytest.fixture
def journal(tmp_path):
    with Store.open(tmp_path / "records.sqlite", pytest.fail) as store:
        yield Journal(store, HERE, Session.resume(tmp_path))


def candidate(implementation, schedule):
    return lambda: schedule


def works(count, **fields):
    return [
        Work(Standing(task(index, **fields)), "{}", candidate, (), {index: ANSOR})
        for index in range(count)
    ]


def tuner(journal, tasks, budget, *, searcher=None, measurer=None, batch=4, scheduler=round_robin):
    return Tuner(
        tasks, scheduler, Budget(**budget), batch, searcher or Proposals(),
        measurer or Stopwatch(), journal, lambda: None,
    )  # fmt: skip


def trials(tasks):
    return [work.standing.trials for work in tasks]


@pytest.mark.parametrize("scheduler", [gradient, round_robin])
@pytest.mark.parametrize("budget", [1, 7, 8, 23])
def test_the_budget_is_spent_and_no_more(journal, scheduler, budget):
    tasks = works(3)
    ended = tuner(journal, tasks, {"trials": budget}, scheduler=scheduler).run()
    assert ended == "all trials are spent"
    assert sum(trials(tasks)) == budget
    written = journal.store.trials(journal.session.name)
    assert sum(tally.trials for tally in written.values()) == budget


def test_a_budget_smaller_than_the_tasks_goes_to_the_heaviest(journal):
    tasks = [*works(2), Work(Standing(task(9, flops=1e12)), "{}", candidate, (), {9: ANSOR})]
    tuner(journal, tasks, {"trials": 1}, batch=1, scheduler=gradient).run()
    assert trials(tasks) == [0, 0, 1]


def test_a_task_gets_no_more_than_its_share(journal):
    tasks = works(2)
    tuner(journal, tasks, {"trials": 100, "trials_per_task": 6}).run()
    assert trials(tasks) == [6, 6]
    assert {work.standing.stopped for work in tasks} == {"its trials are spent"}


def test_a_task_that_had_its_share_before_an_interruption_gets_nothing(journal):
    tasks = works(1)
    tasks[0].standing.trials = 6
    tuner(journal, tasks, {"trials": 100, "trials_per_task": 6}).run()
    assert trials(tasks) == [6]


def test_a_task_is_left_once_it_stops_improving(journal):
    tasks = works(1)
    tuner(
        journal, tasks, {"trials": 500, "early_stop": 10}, measurer=Stopwatch(lambda _: 1.0)
    ).run()
    assert trials(tasks) == [12]
    assert "no better schedule" in tasks[0].standing.stopped


def test_a_task_that_nothing_works_for_is_left(journal):
    tasks = works(2)
    broken = Stopwatch(lambda _: math.inf)
    assert tuner(journal, tasks, {"trials": 500}, measurer=broken).run().startswith("no task has")
    assert trials(tasks) == [8, 8]
    assert [work.standing.failed for work in tasks] == [8, 8]
    assert tasks[0].standing.stopped == "no candidate could be measured"


@pytest.mark.parametrize(
    ("searcher", "stopped", "spent"),
    [
        (Proposals(fails=(0,)), "the search crashed", 0),
        (Proposals(none=(0,)), "no design space", 0),
        (Proposals(limits={0: 5}), "all schedules are tried", 5),
    ],
)
def test_a_search_that_ends_costs_its_task_only(journal, searcher, stopped, spent):
    tasks = works(2)
    tuner(journal, tasks, {"trials": 20}, searcher=searcher).run()
    assert trials(tasks) == [spent, 20 - spent]
    assert tasks[0].standing.stopped == stopped


def test_engines_of_a_task_take_turns_and_one_that_fails_is_left_out(journal):
    tasks = works(1)
    tasks[0].arms[1] = Contender("static", "direct")
    searcher = Proposals(fails=(1,))
    tuner(journal, tasks, {"trials": 12}, searcher=searcher).run()
    assert searcher.made == {0: 12}
    assert searcher.learned == {0: 12}


def test_no_time_left_ends_it_within_a_batch(journal, monkeypatch):
    tasks = works(1)
    clock = iter([0.0] * 6 + [99.0] * 100)
    monkeypatch.setattr(Session, "elapsed", property(lambda _: next(clock)))
    assert tuner(journal, tasks, {"trials": 100, "time": 5.0}).run() == "the time is spent"
    assert 0 < trials(tasks)[0] < 8


def test_candidates_have_the_best_time_to_beat(journal):
    measurer = Stopwatch()
    tuner(journal, works(1), {"trials": 8}, measurer=measurer).run()
    assert measurer.groups == [(4, math.inf), (4, 997.0)]


@pytest.mark.parametrize(
    ("budget", "tasks", "most", "size"),
    [
        (64, 12, 32, 5), (3, 12, 32, 1), (1000, 24, 32, 13), (10_000, 24, 32, 32), (64, 2, 4, 4),
        (9, 0, 8, 8),
    ],
)  # fmt: skip
def test_batches_are_small_where_the_budget_is_small(budget, tasks, most, size):
    assert batch_size(budget, tasks, most) == size


def with_fallback(seconds, index=0):
    standing = Standing(task(index, flops=1e6 + index))
    start = Fallback("static", Planned("direct", str(seconds), None))
    return Work(standing, "{}", candidate, (start,), {index: ANSOR})


def test_what_a_task_is_built_with_anyway_is_timed_first_and_can_win(journal):
    slow, fast = with_fallback(5000.0, 0), with_fallback(5.0, 1)
    tuner(journal, [slow, fast], {"trials": 8}).run()
    assert sum(trials([slow, fast])) == 8
    assert (slow.standing.best, fast.standing.best) == (997.0, 5.0)
    assert journal.best(slow).record.engine == "ansor"
    assert journal.best(fast).record.engine == "static"


def test_a_fallback_is_not_timed_again(journal):
    work = with_fallback(5.0)
    work.standing.best = 4.0
    tuner(journal, [work], {"trials": 4}).run()
    assert [row.record.engine for row in journal.store.rows("0" * 16, "{}", HERE)] == ["ansor"] * 4


def test_a_search_is_told_of_its_own_schedules_only(journal):
    work = with_fallback(5.0)
    tuner(journal, [work], {"trials": 3}).run()
    assert [known.schedule for known in journal.known(work, ANSOR)] == ["1000", "999"]
    assert [known.schedule for known in journal.known(work, Contender("static", "direct"))] == [
        "5.0"
    ]
