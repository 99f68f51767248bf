"""Heavy tasks try plain loops once before the model decides them."""

from math import inf

import pytest

from autopipe.config.schedules import Rule
from autopipe.measure.measurement import Measurement
from autopipe.measure.turn import TurnTimeout
from autopipe.pipeline.counted import Watch
from autopipe.records.session import Session
from autopipe.safety.maker import Maker
from autopipe.schedules.policy import PLAIN, SERIAL
from autopipe.tuning.deadline import Deadline
from autopipe.tuning.decision.extras import Extras, make_extras, measure_extras
from autopipe.tuning.decision.repeat import find_undecided
from autopipe.tuning.evidence import Proposal, TaskEvidence
from autopipe.tuning.journal import Journal
from tests.schedules.engines.test_static import dense
from tests.schedules.made import failures
from tests.schedules.tasks import task
from tests.schedules.tensors import module_of
from tests.tuning.states import TEMPLATES, state_of, trials_of

LOOPS = Proposal(SERIAL, "plain")
FAST = Measurement((1e-6,))


class Machine:
    """Measures every schedule as equally fast, or has no turn; keeps what it was asked."""

    def __init__(self, error=None):
        self.error = error
        self.asked = []

    def rounds(self, candidates, count):
        if self.error:
            raise self.error
        self.asked.append(([candidate.schedule for candidate in candidates], count))
        return [FAST for _ in candidates]


def state(journal, index, seconds):
    each = state_of(task(index, flops=0.0), (TEMPLATES,), rule=Rule(), best=seconds)
    journal.write(each, Proposal(TEMPLATES, "t"), Measurement((seconds,)))
    return each


def measure(journal, states, machine, deadline=None):
    measure_extras(
        trials_of(journal, states),
        runner=machine,
        extras=Extras(plain=lambda _: [LOOPS]),
        deadline=deadline or Deadline(),
        watch=Watch("tune", lambda _: None),
    )


def test_the_extras_of_heavy_tasks_are_trials_outside_the_budget(journal):
    heavy, light = state(journal, 0, 2e-6), state(journal, 1, 5e-9)
    machine = Machine()
    measure(journal, [light, heavy], machine)
    assert machine.asked == [(["plain"], 1)]
    ranked = journal.ranked(heavy)
    assert ranked[0].proposal == LOOPS
    assert {one.place for one in ranked} == {"trial"}
    assert journal.session.trials == 2, "those of the search"


def test_a_resumed_run_does_not_measure_them_again(journal):
    heavy = state(journal, 0, 2e-6)
    measure(journal, [heavy], Machine())
    resumed = Journal(journal.store, journal.platform, journal.session)
    machine = Machine()
    measure(resumed, [heavy], machine)
    assert machine.asked == []
    assert resumed.winner(heavy) == journal.winner(heavy)


def test_results_of_another_run_are_no_evidence(journal, tmp_path):
    heavy = state(journal, 0, 2e-6)

    class Elsewhere(Machine):
        def rounds(self, candidates, count):
            (tmp_path / "other").mkdir()
            session = Session.resume(tmp_path / "other")
            late = Proposal(TEMPLATES, "late")
            Journal(journal.store, journal.platform, session).write(
                heavy, late, Measurement((1e-9,))
            )
            return super().rounds(candidates, count)

    journal.ranked(heavy)
    measure(journal, [heavy], Elsewhere())
    assert {one.proposal.schedule for one in journal.ranked(heavy)} == {"t", "plain"}


@pytest.mark.parametrize(("end", "error"), [(0.0, None), (inf, TurnTimeout())])
def test_tasks_without_time_for_extras_are_counted(journal, end, error):
    heavy, deadline = state(journal, 0, 2e-6), Deadline(end=end)
    measure(journal, [heavy], Machine(error), deadline)
    assert deadline.list_skipped() == ("plain loops (1)",)
    assert journal.winner(heavy).median == 2e-6


def test_plain_loops_are_only_made_where_one_core_could_be_as_fast(tmp_path):
    loops = module_of(*dense())
    with Maker({"task0": loops}, failures(tmp_path)) as maker:
        extras = make_extras(maker, guests={})
        made = {
            seconds: {one.by for one in extras.plain(state_of(task(flops=2e6), best=seconds))}
            for seconds in (1.19e-4, 1.21e-4)
        }
    assert made == {1.19e-4: set(), 1.21e-4: set(PLAIN)}


@pytest.mark.parametrize("place", ["in_model", "repeat"])
def test_only_what_neither_the_model_nor_repeats_decide_is_undecided(journal, place):
    first, second = state(journal, 0, 2e-6), state(journal, 1, 2e-6)
    assert find_undecided([first, second], journal) == [first, second]
    journal.append(first, TaskEvidence(Proposal(TEMPLATES, "t"), place, (1e-6,)))
    assert find_undecided([first, second], journal) == [second]
