"""One setting serves all sizes: the one that is best over all likely ones."""

import json

from autopipe.errors import StageError
from autopipe.measure.measurement import Measurement
from autopipe.pipeline.counted import Watch
from autopipe.stages.build import _list_likely_records
from autopipe.tuning.deadline import Deadline
from autopipe.tuning.decision.extras import Extras
from autopipe.tuning.decision.over_sizes import find_families, invite_guests, pick_settings
from autopipe.tuning.decision.repeat import measure_repeats
from autopipe.tuning.evidence import Proposal
from tests.artifacts.examples import best_record
from tests.schedules.tasks import task
from tests.tuning.states import ANSOR, TEMPLATES, state_of, trials_of


def knobs(rows, template="contraction"):
    """Return a setting; templates for open sizes are asked by name."""
    return json.dumps({"template": template, "version": 1, "knobs": {"rows": rows}})


SMALL, MIDDLE, LARGE, OTHER = knobs(1), knobs(4), knobs(8), knobs(2, "other")


class Machine:
    """Says how long each schedule takes for each task."""

    def __init__(self, times):
        self.times = times

    def rounds(self, candidates, count):
        found = [self.times[candidate.task, candidate.schedule] for candidate in candidates]
        return [Measurement((time,) * count) if time else Measurement(error="no") for time in found]


class Maker:
    """Makes all schedules but those that do not fit."""

    def __init__(self, unfit=()):
        self.unfit = set(unfit)

    def replay(self, name, _, schedule):
        if (name, schedule) in self.unfit:
            raise StageError("does not fit")


def pair():
    """A task with open sizes, and how far its tasks at two likely sizes are."""
    states = [state_of(task(index, flops=0.0), (ANSOR, TEMPLATES)) for index in (1, 2)]
    likely = [state.task.workload for state in states]
    every = task(3).model_copy(update={"likely": likely[0], "also_likely": (likely[1],)})
    return every, states


def write(journal, state, times):
    for schedule, seconds in times.items():
        by = TEMPLATES if schedule.startswith("{") else ANSOR
        journal.write(state, Proposal(by, schedule), Measurement((seconds,)))


def settled(journal, every, states, times, unfit=()):
    """Tune until the end, and return the settings for open sizes."""
    found = find_families([every, *(state.task for state in states)], states)
    invited = invite_guests(found, journal, Maker(unfit))  # type: ignore[arg-type]
    names = [state.task.name for state in states]
    machine = Machine(
        {
            (name, text): at
            for text, row in times.items()
            for name, at in zip(names, row, strict=True)
        }
    )
    measure_repeats(
        trials_of(journal, states),
        runner=machine,
        extras=Extras(guests=invited),
        deadline=Deadline(),
        watch=Watch("tune", lambda _: None),
    )
    return pick_settings(found, journal)


def test_what_is_best_over_all_sizes_wins_and_not_what_is_best_at_one(journal):
    every, (first, second) = pair()
    write(journal, first, {SMALL: 1e-6, MIDDLE: 1.2e-6})
    write(journal, second, {LARGE: 10e-6, MIDDLE: 12e-6})
    times = {SMALL: (1e-6, 30e-6), MIDDLE: (1.2e-6, 12e-6), LARGE: (3e-6, 10e-6)}
    won = settled(journal, every, (first, second), times)
    setting = won[first.task.workload][every.workload]
    assert (setting.engine, setting.schedule) == ("autotvm", MIDDLE)
    assert [journal.winner(state).proposal.schedule for state in (first, second)] == [SMALL, LARGE]


def test_sizes_weigh_alike_however_long_they_take(journal):
    every, (first, second) = pair()
    write(journal, first, {SMALL: 1e-6})
    write(journal, second, {LARGE: 1.0})
    times = {SMALL: (1e-6, 1.2), LARGE: (2e-6, 1.0)}
    assert settled(journal, every, (first, second), times) == {}, "the first record has it"


def test_what_does_not_fit_a_size_or_fails_there_does_not_serve_all(journal):
    every, (first, second) = pair()
    write(journal, first, {SMALL: 1e-6, MIDDLE: 2e-6})
    write(journal, second, {LARGE: 1e-6})
    times = {SMALL: (1e-6, 1e-6), MIDDLE: (2e-6, 9e-6), LARGE: (0, 1e-6)}
    unfit = {(second.task.name, SMALL)}
    won = settled(journal, every, (first, second), times, unfit)
    assert won[first.task.workload][every.workload].schedule == MIDDLE
    assert second.task.workload not in won


def test_a_record_that_serves_one_size_only_has_a_setting_beside_it(journal):
    """Also with one likely size: a trace that is fastest there is none for open sizes."""
    every, (first, _) = pair()
    write(journal, first, {"trace": 1e-6, OTHER: 1.1e-6, "other_trace": 1.2e-6, LARGE: 3e-6})
    times = {"trace": (1e-6,), OTHER: (1.1e-6,), LARGE: (3e-6,)}
    won = settled(journal, every, (first,), times)
    assert won[first.task.workload][every.workload].schedule == LARGE
    assert journal.winner(first).proposal.schedule == "trace"


def test_a_task_that_no_template_schedules_has_no_setting(journal):
    every, (first, _) = pair()
    write(journal, first, {"trace": 1e-6})
    assert settled(journal, every, (first,), {"trace": (1e-6,)}) == {}
    assert find_families([every], []) == []


def test_the_build_takes_what_is_best_over_all_first():
    every, (first, second) = pair()
    one, two = first.task.workload, second.task.workload
    settings = {
        every.workload: {"engine": "autotvm", "implementation": "direct", "schedule": LARGE}
    }
    records = {
        one: best_record(one, schedule=SMALL, dynamic_settings=settings),
        two: best_record(two, schedule=MIDDLE),
    }
    found = [record.schedule for record in _list_likely_records(every, records)]
    assert found == [LARGE, SMALL, MIDDLE]
    assert list(_list_likely_records(first.task, records)) == []
