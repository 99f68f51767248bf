"""The winner of a task is decided by its evidence alone."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autopipe.compiler import module_io
from autopipe.config.schedules import Rule
from autopipe.measure.measurement import Measurement
from autopipe.pipeline.counted import Watch
from autopipe.records.record import Platform
from autopipe.records.session import Session
from autopipe.records.store import RecordStore
from autopipe.tuning.check_schedules import Checks, check_proposals
from autopipe.tuning.deadline import Deadline
from autopipe.tuning.decision.extras import Extras
from autopipe.tuning.decision.repeat import measure_repeats
from autopipe.tuning.evidence import Place, Proposal, TaskEvidence
from autopipe.tuning.journal import Journal
from autopipe.tuning.winner import HARDLY, LEAST, pick_winner
from tests.schedules.tasks import Trusting, task
from tests.tuning.states import ANSOR, STATIC, TEMPLATES, state_of, trials_of

UNTUNED = Proposal(STATIC, "s")
SEARCHED = [Proposal(ANSOR, "a"), Proposal(ANSOR, "b"), Proposal(TEMPLATES, "t")]
EVERY = [UNTUNED, *SEARCHED]

times = st.floats(1e-6, 1e-3)
ratios = st.floats(0.7, 1.3)


@st.composite
def evidence(draw):
    """Return what steps of tuning may leave of four schedules."""
    found = [
        TaskEvidence(
            draw(st.sampled_from(EVERY)), "trial", (draw(times),), coarse=draw(st.booleans())
        )
        for _ in range(draw(st.integers(0, 8)))
    ]
    for series in range(1, 1 + draw(st.integers(0, 2))):
        parts = draw(st.sets(st.sampled_from(EVERY), min_size=1))
        for part in sorted(parts):
            rounds = tuple(draw(times) for _ in range(3))
            found.append(TaskEvidence(part, "repeat", rounds, series=series))
    for place in ("in_model", "package"):
        for part in EVERY if draw(st.booleans()) else ():
            rounds = tuple(draw(ratios) for _ in range(9))
            found.append(TaskEvidence(part, place, rounds))
    for part in draw(st.lists(st.sampled_from(EVERY), max_size=2)):
        verdict = draw(st.sampled_from(["passed", "failed", "excluded"]))
        found.append(TaskEvidence(part, "check", check=verdict))
    return [replace(one, row=row) for row, one in enumerate(found)]


engines = st.sampled_from([(), ("ansor",), ("autotvm", "ansor")])


def winner(found, first=()):
    won = pick_winner(found, untuned=UNTUNED, engines=first)
    return won and won.proposal


@pytest.mark.parametrize("place", ["trial", "repeat"])
@pytest.mark.parametrize(("seconds", "expected"), [(0.99, UNTUNED), (0.97, SEARCHED[2])])
def test_the_untuned_schedule_stays_unless_another_is_clearly_faster(place, seconds, expected):
    times = {UNTUNED: 1.0, SEARCHED[2]: seconds}
    series = place == "repeat"
    found = [TaskEvidence(one, place, (time,), series=series) for one, time in times.items()]
    assert winner(found) == expected
    cut = [replace(one, coarse=one.proposal == UNTUNED) for one in found]
    assert winner(cut) == SEARCHED[2], "its time is a lower bound"


@given(evidence(), st.randoms(use_true_random=False), engines)
def test_the_order_of_evidence_does_not_matter(found, generator, first):
    mixed = list(found)
    generator.shuffle(mixed)
    assert pick_winner(mixed, untuned=UNTUNED, engines=first) == pick_winner(
        found, untuned=UNTUNED, engines=first
    )


@given(evidence(), engines)
def test_the_same_evidence_twice_changes_nothing(found, first):
    assert winner([*found, *found], first) == winner(found, first)


@given(evidence(), st.sampled_from(["failed", "excluded"]), engines)
def test_a_schedule_that_failed_its_check_or_is_excluded_never_wins(found, verdict, first):
    won = winner(found, first)
    if won is not None:
        after = winner([*found, TaskEvidence(won, "check", check=verdict)], first)
        assert after is None or after != won


@given(evidence(), st.floats(0.1, 1.0), st.integers(1, 5), engines)
def test_more_evidence_for_the_winner_never_makes_it_lose(found, factor, rounds, first):
    won = winner(found, first)
    if won is None:
        return
    own = [min(one.times) for one in found if one.proposal == won and one.place == "trial"]
    least = factor * min(own, default=1e-6)
    more = [
        TaskEvidence(won, "check", check="passed"),
        TaskEvidence(won, "trial", (least,), row=len(found)),
        *_later_series(found, won),
        *_faster_rounds(found, won, factor, rounds),
    ]
    for at in range(1, len(more) + 1):
        is_part_of_series = more[at - 1].place == "repeat"  # which is measured as a whole
        assert winner([*found, *more[:at]], first) == won or is_part_of_series
    assert winner([*found, *more], first) == won


def _later_series(found, won):
    """Return all repeats again, without noise, with the winner as the fastest by far."""
    parts = {one.proposal for one in found if one.place == "repeat"}
    return [
        TaskEvidence(part, "repeat", ((1e-7 if part == won else 1e-6),) * 3, series=9)
        for part in sorted(parts)
        if won in parts
    ]


def _faster_rounds(found, won, factor, rounds):
    """Return more rounds inside the model and of packages in which the winner is faster."""
    return [
        TaskEvidence(part, place, ((0.5 * factor if part == won else 1.0),) * rounds, series=9)
        for place in ("in_model", "package")
        for part in sorted({one.proposal for one in found if one.place == place})
        if won in {one.proposal for one in found if one.place == place}
    ]


@given(st.floats(0.5, 2.0), st.lists(times, min_size=3, max_size=3))
def test_the_untuned_schedule_stays_unless_repeats_beat_it_by_a_margin(ratio, rounds):
    other = SEARCHED[0]
    found = [
        TaskEvidence(UNTUNED, "repeat", tuple(rounds), series=1),
        TaskEvidence(other, "repeat", tuple(one * ratio for one in rounds), series=1),
    ]
    assert winner(found) == (UNTUNED if ratio * HARDLY > 1.0 + 1e-9 else other) or (
        abs(ratio * HARDLY - 1.0) < 1e-6
    )


def compared(kernel, package, faster=9):
    """Return evidence of nine rounds, of which so many have these ratios; the others have 1.5."""
    other = SEARCHED[0]
    found = [TaskEvidence(other, "trial", (1e-6,)), TaskEvidence(UNTUNED, "trial", (2e-6,))]
    places: tuple[tuple[Place, float], ...] = (("in_model", kernel), ("package", package))
    for place, ratio in places:
        rounds = (ratio,) * faster + (1.5,) * (9 - faster)
        found += [TaskEvidence(UNTUNED, place, (1.0,) * 9), TaskEvidence(other, place, rounds)]
    return found


@pytest.mark.parametrize(
    ("kernel", "package", "faster", "wins"),
    [
        (0.9, 0.95, 9, True),
        (LEAST + 0.005, 0.95, 9, False),  # hardly faster
        (0.9, 1.0, 9, False),  # the model is not faster as a whole
        (0.9, 0.95, 8, False),  # 8 of 9 packages do not make 99 %
    ],
)
def test_inside_the_model_the_untuned_schedule_stays_unless_it_is_beaten_for_sure(
    kernel, package, faster, wins
):
    assert winner(compared(kernel, package, faster)) == (SEARCHED[0] if wins else UNTUNED)


def test_kernels_need_less_confidence_than_packages():
    """Seven of nine rounds make a kernel likely to be faster."""
    kernels = [one for one in compared(0.9, 0.95, 7) if one.place != "package"]
    packages = [one for one in compared(0.9, 0.95) if one.place == "package"]
    assert winner([*kernels, *packages]) == SEARCHED[0]
    assert winner(kernels) == UNTUNED


def test_a_challenger_of_an_incumbent_that_fails_its_check_does_not_win_by_that():
    failed = TaskEvidence(UNTUNED, "check", check="failed")
    third = TaskEvidence(SEARCHED[1], "trial", (1e-7,))
    assert winner([*compared(0.9, 0.95), failed, third]) == SEARCHED[0]


class Workers:
    """Times schedules as one machine or as the workers of a farm, with the noise of a seed."""

    def __init__(self, names, seed=0):
        self.names, self.draw = names, random.Random(seed)
        self.asked = 0

    def time(self, schedule, count=3):
        least = {"a": 1.0, "b": 1.1, "t": 0.9, "s": 0.95, "plain": 3.0}[schedule] * 1e-4
        return tuple(least * self.draw.uniform(1.0, 1.8) for _ in range(count))

    def rounds(self, candidates, count):
        self.asked += 1
        name = self.names[self.asked % len(self.names)]
        times = [self.time(candidate.schedule, count) for candidate in candidates]
        return [Measurement(seconds, by=name) for seconds in times]


class Makes:
    """Makes any schedule."""

    def replay(self, *_):
        return None


def tuned(folder, workers):
    """Tune one task by made-up times; return the journal, the state and what runs its repeats."""
    store = RecordStore.open(folder / "records.sqlite", pytest.fail)
    journal = Journal(store, Platform("t", "v", "d"), Session.resume(folder))
    state = state_of(task(flops=0.0), (ANSOR, TEMPLATES), rule=Rule(), starts={STATIC: "s"})
    for at, proposal in enumerate(EVERY):
        if not journal.rows(state)[at:]:
            name = workers.names[at % len(workers.names)]
            journal.write(state, proposal, Measurement(workers.time(proposal.schedule), by=name))
    trials = trials_of(journal, [state])
    measure_repeats(
        trials,
        runner=workers,
        extras=Extras(),
        deadline=Deadline(),
        watch=Watch("tune", lambda _: None),
    )
    return journal, state


def test_what_another_run_measures_after_the_search_is_no_evidence(tmp_path, monkeypatch):
    """It may call a library that was just left out."""
    monkeypatch.setattr(module_io, "parse_json", lambda _: None)
    journal, state = tuned(tmp_path, Workers([None]))
    with RecordStore.open(tmp_path / "records.sqlite", pytest.fail) as store:
        (tmp_path / "other").mkdir()
        session = Session.resume(tmp_path / "other")
        Journal(store, journal.platform, session).write(
            state, Proposal(TEMPLATES, "late"), Measurement((1e-9,))
        )
    maker: Any = Makes()
    kept: Any = None
    checks = Checks(journal=journal, maker=maker, inspector=Trusting("static"), failures=kept)
    check_proposals([(state, UNTUNED)], checks)
    journal.add_repeats(state, {SEARCHED[0]: Measurement((1e-4,) * 3)})
    assert {one.proposal.schedule for one in journal.ranked(state)} == {"a", "b", "t"}
    journal.store.close()


@pytest.mark.parametrize("seed", range(8))
def test_a_farm_and_one_machine_decide_the_same_by_the_same_times(tmp_path, seed):
    decided = []
    for name, workers in (("alone", [None]), ("farm", ["w1", "w2", "w3"])):
        folder = tmp_path / name
        folder.mkdir()
        journal, state = tuned(folder, Workers(workers, seed))
        decided.append([(one.proposal, one.times) for one in [journal.winner(state)] if one])
        journal.store.close()
    assert decided[0] == decided[1]
    assert decided[0]


@pytest.mark.parametrize("seed", range(8))
def test_a_replay_of_the_records_decides_what_was_decided_live(tmp_path, seed):
    workers = Workers([None], seed)
    journal, state = tuned(tmp_path, workers)
    live, asked = journal.winner(state), workers.asked
    journal.session.save()
    journal.store.close()
    again, state = tuned(tmp_path, workers)
    assert again.session.name == journal.session.name
    replayed = again.winner(state)
    again.store.close()
    assert live is not None
    assert replayed is not None
    assert (replayed.proposal, workers.asked) == (live.proposal, asked)
