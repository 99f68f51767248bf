"""Which schedule wins inside the model: comparisons on models whose times are made up."""

import random
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from autopipe.measure.measurement import Measurement
from autopipe.records.record import Platform
from autopipe.records.session import Session
from autopipe.records.store import RecordStore
from autopipe.tuning.decision.compare import FinalistComparison
from autopipe.tuning.decision.finalists import Finalists, _make_finalists, _rank_candidates
from autopipe.tuning.decision.model_runs import Limits, TooLate
from autopipe.tuning.evidence import Proposal, TaskEvidence
from autopipe.tuning.journal import Journal
from autopipe.tuning.results import _describe_comparison
from autopipe.tuning.winner import pick_winner
from tests.schedules.tasks import task
from tests.tuning.states import ANSOR, STATIC, TEMPLATES, state_of

SCHEDULE = '["{}"]'
WEEK = 7 * 24 * 3600.0


class Models:
    """Says how long kernels take, by function and place among the finalists, with a little noise.

    `penalty` is what `other` takes longer with any new winner of the last rounds.
    """

    def __init__(self, times, penalty=0.0, noise=0.01):
        self.times = times
        self.penalty = penalty
        self.noise = random.Random(0).uniform, noise
        self.asked = []
        self.watched = 0

    def build(self, place):
        self.asked.append("build")

    def add(self, rank, functions):
        self.asked.append(f"{functions[0]}{rank}")

    def round(self, places):
        self.watched += 1
        self.asked += [place for place in places if place not in self.asked]
        last = len(places) == 2 and {} in places
        return [self._kernels(place, last and any(place.values())) for place in places]

    def unwatched(self):
        return 0.5 + sum(of[0] for of in self.times.values())

    def link(self, place):
        pass

    def whole(self, places):
        self.asked += [place for place in places if place not in self.asked]
        return [sum(self._kernels(place, any(place.values())).values()) for place in places]

    def _kernels(self, place, new):
        draw, noise = self.noise
        found = {
            name: of[place.get(name, 0)] * (1 + draw(0, noise)) for name, of in self.times.items()
        }
        return found | {"other": 1.0 + self.penalty * new}


class Shy(Models):
    """Takes the same time with any schedules while nobody watches."""

    def whole(self, places):
        draw, _ = self.noise
        return [1.0 + draw(0, 0.01) for _ in places]


def entered(**counts):
    """Return finalists of tasks with so many each, by the name of their function."""
    found = []
    for index, (name, count) in enumerate(counts.items()):
        fields = {"functions": (name,), "calls": 1}
        state = state_of(task(index).model_copy(update=fields))
        proposals = tuple(
            Proposal(ANSOR, SCHEDULE.format(f"{name}{rank}")) for rank in range(count)
        )
        found.append(Finalists(state, proposals, (None,) * count))
    return found


def play(models, some, seconds=WEEK, passed=lambda proposals: proposals):
    tasks = [entry.state.task for entry in some]
    return FinalistComparison(models, tasks, some, Limits(seconds, nullcontext, passed)).decide()


def changed(found, some):
    """Return the schedules that win in the place of the winners of the trials."""
    changes = []
    for entry in some:
        trials = [
            TaskEvidence(proposal, "trial", (1.0 + rank,))
            for rank, proposal in enumerate(entry.proposals)
        ]
        evidence = [*trials, *found.evidence[entry.state.task.workload]]
        won = pick_winner(evidence, untuned=entry.incumbent)
        assert won is not None
        if won.proposal != entry.proposals[0]:
            changes.append(won.proposal.schedule[2:-2])
    return changes


def test_who_is_faster_in_the_model_wins_there():
    models = Models({"a": (2.0, 1.0, 1.5), "b": (1.0, 2.0), "c": (1.0, 1.0), "d": (1.0,)})
    some = entered(a=3, b=2, c=2, d=1)
    assert changed(play(models, some), some) == ["a1"]
    second, third = {"a": 1, "b": 1, "c": 1}, {"a": 2}
    compiled = ["a0", "a1", "b0", "b1", "c0", "c1", "a2"]
    assert models.asked == ["build", {}, *compiled, second, third, {"a": 1}]


def test_the_fastest_of_many_is_compared_with_the_winner_anew():
    models = Models({"a": (2.0, 1.9, 1.8, 1.0, 1.7), "b": (1.0, 2.0, 3.0)})
    some = entered(a=5, b=3)
    found = play(models, some)
    assert changed(found, some) == ["a3"]
    heat = [{"a": 1, "b": 1}, {"a": 2, "b": 2}, {"a": 3}, {"a": 4}]
    compiled = ["a0", "a1", "b0", "b1", "a2", "b2", "a3", "a4"]
    assert models.asked == ["build", {}, *compiled, *heat, {"a": 3, "b": 1}]
    ratio = found.tasks[f"{0:016x}"].ratio
    assert ratio is not None
    assert ratio[0] == pytest.approx(0.5, rel=0.02)


def test_a_gain_that_is_likely_counts_where_the_whole_is_faster_for_sure():
    """Most rounds say that each kernel is faster, and none says it in 99 of 100 cases."""
    times = {f"b{at}": (1.0, 0.9) for at in range(20)}
    found = play(Models(times, noise=0.4), entered(**dict.fromkeys(times, 2)))
    assert found.report.gain is not None
    assert found.report.gain[2] < 1.0
    assert found.report.changed > found.report.decided


def test_the_report_of_a_comparison():
    models = Models({"a": (2.0, 1.0, 1.5), "b": (1.0, 2.0), "c": (1.0, 1.0), "d": (1.0,)})
    found = play(models, entered(a=3, b=2, c=2, d=1))
    told = found.report
    assert (told.tasks, told.decided, told.changed) == (3, 2, 1)
    assert told.kernels == pytest.approx(5.0, rel=0.02)
    assert told.gain is not None
    assert told.gain[0] == pytest.approx(5 / 6, rel=0.02)
    replaced = [found.tasks[f"{at:016x}"].replaced for at in range(4)]
    assert replaced[1:] == [None] * 3
    assert replaced[0] is not None
    assert replaced[0].schedule == SCHEDULE.format("a0")
    assert all(time == pytest.approx(1.0, rel=0.02) for time in found.times[f"{0:016x}"])


def test_a_model_is_watched_no_more_once_its_packages_run(monkeypatch):
    models = Models({"a": (2.0, 1.0), "b": (1.0, 2.0)})
    whole, counts = models.whole, []

    def count(places):
        counts.append(models.watched)
        return whole(places)

    monkeypatch.setattr(models, "whole", count)
    play(models, entered(a=2, b=2))
    assert set(counts) == {models.watched}


def test_where_packages_cannot_be_built_in_time_the_kernels_decide(monkeypatch):
    models = Models({"a": (2.0, 1.0), "b": (1.0, 2.0)})
    monkeypatch.setattr("autopipe.tuning.decision.model_runs.Pace.builds", lambda _: False)
    some = entered(a=2, b=2)
    found = play(models, some)
    assert changed(found, some) == ["a1"]
    assert found.report.gain is not None
    assert found.report.gain[0] == pytest.approx(3 / 4, rel=0.02)  # of both kernels, and `other`


def test_new_winners_that_slow_the_whole_down_go():
    some = entered(a=2, b=3)
    found = play(Models({"a": (2.0, 1.0), "b": (1.0, 2.0, 2.0)}, penalty=3.0), some)
    assert changed(found, some) == []
    assert found.report.changed == 0
    assert found.report.decided == 2
    assert found.report.gain is not None
    assert found.report.gain[0] > 1.0
    assert min(found.times[f"{0:016x}"]) >= 2.0


def test_new_winners_stay_only_where_the_whole_is_faster_for_sure():
    """The kernel is faster by far, but nothing to what the others take by chance."""
    times = {"a": (0.02, 0.01), **{f"b{at}": (1.0,) for at in range(9)}}
    models = Models(times, noise=0.2)
    some = entered(a=2)
    found = play(models, some)
    assert models.asked[-1] == {"a": 1}
    assert (found.report.decided, changed(found, some)) == (1, [])


def test_noise_changes_nothing():
    some = entered(a=2)
    found = play(Models({"a": (1.0, 0.98)}, noise=0.5), some)
    assert (found.report.decided, changed(found, some)) == (0, [])


def test_what_is_wrong_does_not_win():
    models = Models({"a": (2.0, 1.0), "b": (2.0, 1.0), "c": (1.0, 1.0, 1.0)})
    some = entered(a=2, b=2, c=3)
    found = play(models, some, passed=lambda proposals: [max(proposals)])
    assert changed(found, some) == ["b1"]
    assert models.asked[-1] == {"b": 1}


def holding(**counts):
    """Return finalists of whom the second was not searched."""
    return [replace(entry, held=1) for entry in entered(**counts)]


def test_who_won_the_trials_has_to_beat_inside_the_model_what_nobody_searched():
    models = Models({"a": (1.0, 1.0), "b": (0.5, 1.0), "c": (1.0, 1.0, 0.5)})
    some = holding(a=2, b=2, c=3)
    found = play(models, some)
    assert changed(found, some) == ["a1", "c2"]
    assert found.report.gain is not None
    assert found.report.gain[0] == pytest.approx(3 / 4, rel=0.02)
    assert models.asked[-1] == {"a": 1, "c": 2}


def test_what_nobody_searched_stays_where_no_gain_is_sure():
    some = holding(a=2)
    found = play(Models({"a": (1.0, 1.0)}), some)
    assert changed(found, some) == ["a1"]
    assert found.report.gain is None


def test_what_is_faster_only_while_it_is_watched_does_not_win():
    some = entered(a=2)
    found = play(Shy({"a": (1.0, 0.5)}), some)
    assert found.report.decided == 1
    assert changed(found, some) == []


def test_the_line_of_tuning_says_where_nothing_was_found():
    times = {"a": (1.0, 0.5)}
    for models, nothing in ((Models(times), False), (Shy(times), True)):
        line = _describe_comparison(play(models, entered(a=2)).report)
        assert ("nothing was found" in line) == nothing
        assert "ms inside the model" in line


def test_without_time_the_trials_decide():
    with pytest.raises(TooLate):
        play(Models({"a": (2.0, 1.0)}), entered(a=2), seconds=0.0)


def test_without_time_for_the_last_rounds_the_trials_decide(monkeypatch):
    """Nothing was told that is sure: neither who won nor who held the place may be taken."""
    models, now = Models({"a": (1.0, 2.0, 0.5)}), [0.0]
    monkeypatch.setattr("autopipe.tuning.decision.model_runs.monotonic", lambda: now[0])
    run = models.round

    def slow(places):
        now[0] += 1.0
        return run(places)

    def no_time(_):
        now[0] += 1000.0
        return [1.0, 1.0]

    monkeypatch.setattr(models, "round", slow)
    monkeypatch.setattr(models, "whole", no_time)
    with pytest.raises(TooLate):
        play(models, holding(a=3), seconds=24.0)
    assert {"a": 1} in models.asked


class Slow(Models):
    """Takes its time on a clock that is made up: 2 s to build, 1 s to compile, 10 ms to run."""

    def __init__(self, times, monkeypatch, run=0.01):
        super().__init__(times)
        self.now, self.run = 0.0, run
        monkeypatch.setattr("autopipe.tuning.decision.model_runs.monotonic", lambda: self.now)

    def build(self, place):
        self.now += 2.0
        super().build(place)

    def add(self, rank, functions):
        self.now += 1.0
        super().add(rank, functions)

    def round(self, places):
        self.now += self.run * len(places)
        return super().round(places)

    def whole(self, places):
        self.now += 1.0
        return super().whole(places)


def weighed(**times):
    """Return two finalists of each task, of which this is the time of all calls."""
    found = entered(**dict.fromkeys(times, 2))
    for entry, seconds in zip(found, times.values(), strict=True):
        entry.state.best = seconds
    return found


def test_where_time_is_short_the_heaviest_tasks_are_played(monkeypatch):
    models = Slow({"a": (2.0, 1.0), "b": (2.0, 1.0), "c": (2.0, 1.0)}, monkeypatch)
    some = weighed(a=1.0, b=3.0, c=2.0)
    found = play(models, some, seconds=9.0)
    assert models.asked == ["build", {}, "b0", "b1", "c0", "c1", "a0", {"b": 1, "c": 1}]
    assert changed(found, some) == ["b1", "c1"]
    assert models.now < 9.0


def test_what_there_was_no_time_to_compile_keeps_who_holds_its_place(monkeypatch):
    models = Slow({"a": (2.0, 1.0), "b": (2.0, 1.0)}, monkeypatch)
    some = [replace(entry, held=1) for entry in weighed(a=1.0, b=3.0)]
    found = play(models, some, seconds=6.0)
    assert models.asked == ["build", {"a": 1, "b": 1}, "b0", "b1", {"a": 1}]
    assert changed(found, some) == ["a1", "b1"]


@pytest.mark.parametrize("run", [0.05, 0.1, 0.15])
def test_time_is_kept_for_the_rounds_of_a_slow_model(monkeypatch, run):
    models = Slow(
        {name: (2.0, *(1.0 + 0.1 * k for k in range(7))) for name in "ab"}, monkeypatch, run
    )
    some = entered(a=8, b=8)
    found = play(models, some, seconds=16.0)
    assert changed(found, some) == ["a1", "b1"]
    assert models.now < 16.0


def test_time_is_kept_for_packages_in_turn_where_that_is_long_enough(monkeypatch):
    names = "abcdefgh"
    models = Slow(dict.fromkeys(names, (2.0, 1.0)), monkeypatch)
    found = play(models, weighed(**dict.fromkeys(names, 1.0)), seconds=30.0)
    compiled = [each for each in models.asked if isinstance(each, str)][1:]
    assert 10 <= len(compiled) < 16
    assert found.report.gain is not None
    assert models.now < 30.0


def test_what_an_untuned_build_has_holds_the_place_though_another_start_was_faster(tmp_path):
    other = STATIC._replace(implementation="winograd2")
    maker: Any = SimpleNamespace(replay=lambda *_: None)
    with RecordStore.open(tmp_path / "records.sqlite", pytest.fail) as store:
        journal = Journal(store, Platform("t", "v", "d"), Session.resume(tmp_path))
        state = state_of(task(), (ANSOR,), starts={STATIC: "s", other: "s"})
        for by, name, seconds in ((ANSOR, "a", 1.5), (STATIC, "s", 2.0), (other, "s", 1.0)):
            journal.write(state, Proposal(by, name), Measurement((seconds,)))
        found = _make_finalists(state, _rank_candidates(state, journal), maker, 8)
    assert found.proposals[0] == Proposal(other, "s")
    assert found.proposals[found.held] == Proposal(STATIC, "s")


def test_what_nobody_searched_may_win_however_slow_its_trial_was(tmp_path):
    with RecordStore.open(tmp_path / "records.sqlite", pytest.fail) as store:
        journal = Journal(store, Platform("t", "v", "d"), Session.resume(tmp_path))
        state = state_of(task(), (ANSOR, TEMPLATES), starts={STATIC: "s"})
        times = (
            (ANSOR, "a", 1.0),
            (TEMPLATES, "t", 1.4),
            (TEMPLATES, "u", 1.6),
            (STATIC, "s", 9.0),
        )
        for by, name, seconds in times:
            journal.write(state, Proposal(by, name), Measurement((seconds,)))
        ranked = [proposal.schedule for proposal in dict.fromkeys(_rank_candidates(state, journal))]
    assert ranked == ["a", "s", "t"]
