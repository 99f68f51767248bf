import json
import math
from collections import Counter
from typing import cast

import pytest

from autopipe.config.schedules import Rule
from autopipe.measure.measurement import Measurement
from autopipe.processes.contained import Failed
from autopipe.processes.failure import Failure, How
from autopipe.records.session import Session
from autopipe.schedules.policy import Contender
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.search.first_round import measure_shares, measure_starts
from autopipe.tuning.search.loop import TuningLoop, choose_batch_size
from autopipe.tuning.search.scheduler import choose_by_gradient, choose_round_robin
from autopipe.tuning.search.searcher import OutOfTime, Searcher
from tests.tuning.states import ANSOR, STATIC, TEMPLATES, state, trials_of


class Proposals:
    """A searcher that counts up, so that each trace is the time it will be measured to take."""

    def __init__(self, limits=None, fails=(), none=()):
        self.limits, self.fails, self.none = limits or {}, fails, none
        self.made: Counter[tuple[int, Contender]] = Counter()
        self.learned: Counter[tuple[int, Contender]] = Counter()
        self.begun: list[int] = []

    width = 1

    def begin(self, state, by, count):
        self.begun.append(state.task.index)

    def propose(self, state, by, count):
        if (state.task.index, by) in self.fails:
            raise Failed(Failure(How.CRASHED, "the search crashed"))
        if (state.task.index, by) in self.none:
            return None
        own = state.task.index, by
        first = self.made[own]
        self.made[own] = min(first + count, self.limits.get(own, math.inf))
        return [str(1000 - number) for number in range(first, self.made[own])]

    def learn(self, state, by, measured):
        self.learned[state.task.index, by] += len(measured)


class Stopwatch:
    """Takes the trace for the time; `broken` tasks never work."""

    def __init__(self, seconds=float):
        self.seconds = seconds
        self.groups = []

    width = 1

    def measure(self, candidates, best=math.inf, *, same_task=True, until=math.inf):
        self.groups.append((len(candidates), best))
        for place, candidate in enumerate(candidates):
            schedule = candidate.schedule
            time = self.seconds(schedule)
            yield place, Measurement(error="crashed") if math.isinf(time) else Measurement((time,))


def states(count, **fields):
    return [state(index, **fields) for index in range(count)]


def start(journal, tasks, budget, *, measurer=None):
    measure_starts(trials_of(journal, tasks, measurer or Stopwatch(), **budget))


def tuner(
    journal, tasks, budget, *, searcher=None, measurer=None, batch=4, scheduler=choose_round_robin
):
    trials = trials_of(journal, tasks, measurer or Stopwatch(), **budget)
    return TuningLoop(
        trials, scheduler, batch, cast("Searcher", searcher or Proposals()), lambda *_: None
    )


def trials(tasks):
    return [each.trials for each in tasks]


@pytest.mark.parametrize("scheduler", [choose_by_gradient, choose_round_robin])
@pytest.mark.parametrize("budget", [1, 7, 8, 23])
def test_the_budget_is_spent_and_no_more(journal, scheduler, budget):
    tasks = states(3)
    ended = tuner(journal, tasks, {"trials": budget}, scheduler=scheduler).run()
    assert ended == "all trials are spent"
    assert sum(trials(tasks)) == budget
    written = journal.store.trials(journal.session.name)
    assert sum(tally.trials for tally in written.values()) == budget


@pytest.mark.fault("D20")
def test_a_budget_smaller_than_the_tasks_goes_to_the_heaviest(journal):
    tasks = [*states(2, share=0.1), state(9, share=0.8)]
    tuner(journal, tasks, {"trials": 1}, batch=1, scheduler=choose_by_gradient).run()
    assert trials(tasks) == [0, 0, 1]


def test_a_task_gets_no_more_than_its_share(journal):
    tasks = states(2)
    tuner(journal, tasks, {"trials": 100, "trials_per_task": 6}).run()
    assert trials(tasks) == [6, 6]
    assert {each.stopped for each in tasks} == {"its trials are spent"}


def test_a_task_that_had_its_share_before_an_interruption_gets_nothing(journal):
    tasks = states(1)
    tasks[0].trials = 6
    tuner(journal, tasks, {"trials": 100, "trials_per_task": 6}).run()
    assert trials(tasks) == [6]


def test_a_task_is_left_once_it_stops_improving(journal):
    tasks = states(1)
    tuner(
        journal, tasks, {"trials": 500, "early_stop": 10}, measurer=Stopwatch(lambda _: 1.0)
    ).run()
    assert trials(tasks) == [12]
    assert "no gain in" in tasks[0].stopped


@pytest.mark.fault("D1", "G10")
def test_a_trial_is_on_the_disk_before_anybody_is_told_of_it(journal):
    tasks, told = [with_start(2000.0, 0), *states(3)[1:]], []

    def check():
        kept = journal.store.trials(journal.session.name).values()
        noted = json.loads(journal.session.path.read_text())["trials"]
        told.append(noted)
        assert noted == sum(each.trials for each in kept) == sum(trials(tasks))

    made = trials_of(journal, tasks, Stopwatch(), check, trials=10)
    measure_starts(made)
    searcher = cast("Searcher", Proposals())
    TuningLoop(made, choose_round_robin, 4, searcher, lambda *_: None).run()
    assert told == list(range(1, 11))


@pytest.mark.fault("D1", "D20")
def test_a_time_budget_that_earlier_runs_have_spent_buys_nothing(journal):
    tasks = [with_start(5.0), *states(2)[1:]]
    journal.session.spent = 61.0
    budget = {"trials": 100, "time": 60.0}
    start(journal, tasks, budget)
    assert tuner(journal, tasks, budget).run() == "the time is spent"
    assert trials(tasks) == [0, 0]


@pytest.mark.fault("D9")
def test_a_task_that_nothing_works_for_is_left(journal):
    tasks = states(2)
    broken = Stopwatch(lambda _: math.inf)
    assert tuner(journal, tasks, {"trials": 500}, measurer=broken).run().startswith("no task has")
    assert trials(tasks) == [8, 8]
    assert [each.failed for each in tasks] == [8, 8]
    assert tasks[0].stopped == "no candidate could be measured"


@pytest.mark.fault("D10")
@pytest.mark.parametrize(
    ("searcher", "stopped", "spent"),
    [
        (Proposals(fails=[(0, ANSOR)]), "the search crashed", 0),
        (Proposals(none=[(0, ANSOR)]), "no design space", 0),
        (Proposals(limits={(0, ANSOR): 5}), "all schedules are tried", 5),
    ],
)
def test_a_search_that_ends_costs_its_task_only(journal, searcher, stopped, spent):
    tasks = states(2)
    tuner(journal, tasks, {"trials": 20}, searcher=searcher).run()
    assert trials(tasks) == [spent, 20 - spent]
    assert tasks[0].stopped == stopped


@pytest.mark.fault("D10")
def test_a_contender_that_fails_is_left_out(journal):
    (each,) = tasks = [state(0, contenders=(ANSOR, TEMPLATES))]
    searcher = Proposals(fails=[(0, TEMPLATES)])
    tuner(journal, tasks, {"trials": 12}, searcher=searcher).run()
    assert (searcher.made, searcher.learned) == ({(0, ANSOR): 12},) * 2
    assert each.bandit.arms[TEMPLATES].out == "the search crashed"
    assert each.stopped is None


def test_it_is_said_how_many_tasks_were_not_worth_a_search(journal):
    tasks = states(3)
    for each in tasks[:2]:
        each.stopped = "0.050% of the measured time < 0.100%"
    ended = tuner(journal, tasks, {"trials": 99}, searcher=Proposals(limits={(2, ANSOR): 4})).run()
    assert ended.endswith("left to try; 2 of 3 are not worth a search (tasks.judge)")
    assert [each.trials for each in tasks] == [0, 0, 4]


def test_a_search_that_the_time_ends_in_is_not_left_out(journal):
    class Slow(Proposals):
        def propose(self, state, by, count):
            if state.trials:
                journal.session.started -= 60.0
                raise OutOfTime
            return super().propose(state, by, count)

    (one,) = states(1)
    tuned = tuner(journal, [one], {"trials": 100, "time": 50.0}, searcher=Slow())
    assert tuned.run() == "the time is spent"
    assert one.trials
    assert one.bandit.arms[ANSOR].out is None


@pytest.mark.fault("D20")
def test_no_time_left_ends_it_within_a_batch(journal, monkeypatch):
    tasks = states(1)
    clock = iter([0.0] * 6 + [99.0] * 100)
    monkeypatch.setattr(Session, "elapsed", property(lambda _: next(clock)))
    assert tuner(journal, tasks, {"trials": 100, "time": 5.0}).run() == "the time is spent"
    assert 0 < trials(tasks)[0] < 8


def test_candidates_have_the_best_time_to_beat(journal):
    measurer = Stopwatch()
    tuner(journal, states(1), {"trials": 8}, measurer=measurer).run()
    assert measurer.groups == [(4, math.inf), (4, 997.0)]


class Several(Stopwatch):
    """Begins to measure when it is asked, as a farm does."""

    width = 4

    def __init__(self):
        super().__init__()
        self.open, self.most = 0, 0

    def measure(self, candidates, best=math.inf, *, same_task=True, until=math.inf):
        self.open += len(candidates)
        self.most = max(self.most, self.open)
        return self._measured(candidates)

    def _measured(self, candidates):
        for place in reversed(range(len(candidates))):  # the last one comes first
            self.open -= 1
            yield place, Measurement((float(candidates[place].schedule),))


def test_the_next_task_proposes_while_others_are_measured(journal):
    tasks, measurer, searcher = states(3), Several(), Proposals()
    ended = tuner(journal, tasks, {"trials": 90}, measurer=measurer, searcher=searcher).run()
    assert (ended, sum(trials(tasks)), measurer.open) == ("all trials are spent", 90, 0)
    assert measurer.most == 2 * measurer.width
    assert searcher.made == searcher.learned
    assert max(trials(tasks)) - min(trials(tasks)) <= 4


def test_on_one_machine_the_next_task_proposes_before_the_first_is_measured(journal):
    events = []

    class Noting(Proposals):
        def begin(self, state, by, count):
            events.append(("proposes", state.task.index))

    class Alone(Stopwatch):
        def measure(self, candidates, best=math.inf, *, same_task=True, until=math.inf):
            events.append(("is measured", len(candidates)))
            yield from super().measure(candidates, best)

    tuner(journal, states(2), {"trials": 64}, measurer=Alone(), searcher=Noting()).run()
    assert events[:4] == [
        ("proposes", 0), ("proposes", 1), ("is measured", 4), ("proposes", 0)
    ]  # fmt: skip


def test_a_small_budget_is_not_all_in_flight_at_a_time(journal):
    measurer = Several()
    tuner(journal, states(3), {"trials": 30}, measurer=measurer).run()
    assert measurer.most == 4


def test_as_many_tasks_propose_at_a_time_as_may(journal):
    class Beside(Proposals):
        width, most = 2, 0

        def propose(self, state, by, count):
            self.most = max(self.most, len(self.begun))
            self.begun.remove(state.task.index)
            return super().propose(state, by, count)

    tasks, measurer, searcher = states(5), Several(), Beside()
    ended = tuner(journal, tasks, {"trials": 42}, measurer=measurer, searcher=searcher).run()
    assert (ended, sum(trials(tasks)), measurer.open) == ("all trials are spent", 42, 0)
    assert (searcher.most, searcher.begun) == (2, [])
    assert searcher.made == searcher.learned


def test_batches_of_a_contender_double_up_to_a_full_one(journal):
    watch = Stopwatch()
    tuner(journal, states(1), {"trials": 100}, measurer=watch, batch=32).run()
    assert [count for count, _ in watch.groups] == [4, 8, 16, 32, 32, 8]


def test_a_single_task_waits_for_its_batch(journal):
    measurer = Several()
    tuner(journal, states(1), {"trials": 12}, measurer=measurer).run()
    assert measurer.most == 4


@pytest.mark.parametrize(
    ("budget", "tasks", "most", "size"),
    [
        (64, 12, 32, 5), (3, 12, 32, 1), (1000, 24, 32, 13), (10_000, 24, 32, 32), (64, 2, 4, 4),
        (9, 0, 8, 8),
    ],
)  # fmt: skip
def test_batches_are_small_where_the_budget_is_small(budget, tasks, most, size):
    assert choose_batch_size(budget, tasks, most) == size


def with_start(seconds, index=0, **fields):
    return state(index, starts={STATIC: str(seconds)}, **fields)


def engines_of(journal, each):
    return [row.record.engine for row in journal.rows(each)]


def test_starts_are_measured_everywhere_the_heaviest_task_first(journal):
    tasks = [with_start(5000.0, 0, share=0.2), with_start(5.0, 1, share=0.8)]
    start(journal, tasks, {"trials": 8})
    rows = [row for each in tasks for row in journal.rows(each)]
    assert [row.record.seconds for row in sorted(rows, key=lambda row: row.id)] == [(5.0,), (5e3,)]
    assert [each.history for each in tasks] == [[5000.0], [5.0]]
    assert [each.bandit.reached for each in tasks] == [{"direct": 5000.0}, {"direct": 5.0}]


def test_what_a_task_is_built_with_anyway_can_win(journal):
    slow, fast = with_start(5000.0, 0), with_start(5.0, 1)
    start(journal, [slow, fast], {"trials": 8})
    tuner(journal, [slow, fast], {"trials": 8}).run()
    assert sum(trials([slow, fast])) == 8
    assert (slow.best, fast.best) == (997.0, 5.0)
    assert journal.winner(slow).proposal.by.engine == "ansor"
    assert journal.winner(fast).proposal.by.engine == "static"


def test_starts_are_not_measured_again(journal):
    for _ in range(2):
        each = with_start(5.0)
        start(journal, [each], {"trials": 4})
    assert engines_of(journal, each) == ["static"]


@pytest.mark.parametrize("budget", [{"trials": 2}, {"trials": 9, "time": 1e-9}])
def test_starts_stay_within_the_budget(journal, budget):
    tasks = [with_start(5.0, index, share=0.1 * index) for index in range(3)]
    start(journal, tasks, budget)
    assert trials(tasks) == ([0, 1, 1] if budget["trials"] == 2 else [0, 0, 0])


def test_a_start_that_fails_costs_its_task_only(journal):
    broken, sound = with_start(math.inf, 0, share=0.9), with_start(2.0, 1)
    start(journal, [broken, sound], {"trials": 9})
    assert (broken.failed, sound.best) == (1, 2.0)
    tuner(journal, [broken, sound], {"trials": 9}).run()
    assert broken.best < 1001


def test_shares_are_those_of_the_measured_starts(journal):
    tasks = [
        with_start(3.0, 0, share=0.5, calls=2),
        with_start(2.0, 1, share=0.3),
        state(2, share=0.2),
    ]
    start(journal, tasks, {"trials": 8})
    assert measure_shares(tasks, journal) == pytest.approx({0: 0.6, 1: 0.2, 2: 0.2})


def test_a_search_is_told_of_all_schedules_of_its_implementation(journal):
    each = with_start(5.0)
    start(journal, [each], {"trials": 3})
    tuner(journal, [each], {"trials": 3}).run()
    known = journal.known(each, ANSOR.implementation)
    assert [schedule.schedule for schedule in known] == ["5.0", "1000", "999"]
    assert journal.known(each, "winograd4") == []


def test_records_of_others_than_the_rule_names_do_not_win(journal):
    everybody = state(0, contenders=(ANSOR, TEMPLATES))
    journal.write(everybody, Proposal(ANSOR, "a"), Measurement((1.0,)))
    journal.write(everybody, Proposal(TEMPLATES, "b"), Measurement((2.0,)))
    journal.write(everybody, Proposal(STATIC, "c"), Measurement((0.5,)))
    assert journal.winner(everybody).proposal.by.engine == "ansor"
    assert journal.winner(state(0, contenders=(TEMPLATES,))).proposal.by.engine == "autotvm"
    assert journal.winner(state(0, contenders=())) is None
    first = Rule(engines=("autotvm", "ansor"), select="first")
    only = state(0, contenders=(ANSOR, TEMPLATES), rule=first)
    assert journal.winner(only).proposal.by.engine == "autotvm"
