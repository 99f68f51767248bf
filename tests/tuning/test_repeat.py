"""Who looks fastest is timed again, in turn with the runner-up and the loops without threads."""

from functools import partial

import pytest

from autopipe.artifacts.tuning import BestRecord, TuningResult
from autopipe.config.schedules import Rule
from autopipe.measure.measurement import Measurement
from autopipe.pipeline.counted import Watch
from autopipe.records.proofs import list_proofs
from autopipe.records.session import Session
from autopipe.schedules.engines import default, loops
from autopipe.schedules.policy import SERIAL
from autopipe.schedules.replay import replay_schedule
from autopipe.tuning.deadline import Deadline
from autopipe.tuning.decision.extras import Extras
from autopipe.tuning.decision.repeat import measure_repeats
from autopipe.tuning.evidence import Proposal, TaskEvidence
from autopipe.tuning.journal import Journal
from tests.compiler.cuda_graphs import CONDITIONS as GPU
from tests.schedules.engines.test_default import pool
from tests.schedules.engines.test_static import dense
from tests.schedules.tasks import CONDITIONS, task
from tests.schedules.tensors import module_of
from tests.tuning.states import ANSOR, STATIC, TEMPLATES, state_of, trials_of


class Machine:
    """Says how long schedules take, and what it was asked; `busy` is what the first rounds say."""

    def __init__(self, times, busy=()):
        self.times = times
        self.busy = list(busy)
        self.asked = []

    def rounds(self, candidates, count):
        names = [candidate.schedule for candidate in candidates]
        self.asked.append(names)
        spread = self.busy.pop(0) if self.busy else 1.0
        return [
            Measurement((self.times[each], *(self.times[each] * spread,) * (count - 1)))
            if self.times[each]
            else Measurement(error="crashed")
            for each in names
        ]


def state(rule=None):
    return state_of(task(flops=0.0), (ANSOR, TEMPLATES), rule=rule or Rule())


def repeat(trials, machine):
    plain = [Proposal(SERIAL, "plain")]
    measure_repeats(
        trials,
        runner=machine,
        extras=Extras(plain=lambda _: plain),
        deadline=Deadline(),
        watch=Watch("tune", lambda _: None),
    )


def settled(journal, machine, states):
    repeat(trials_of(journal, states), machine)
    best = journal.winner(states[0])
    return best and (best.proposal.by.engine, best.proposal.schedule, best.median)


def trials(journal, each, **times):
    for name, seconds in times.items():
        by = ANSOR if name.startswith("a") else TEMPLATES
        journal.write(each, Proposal(by, name), Measurement(seconds))


@pytest.mark.fault("L7")
def test_a_time_of_a_busy_moment_is_put_right(journal):
    each = state()
    trials(journal, each, a1=(1.21e-3,), t1=(1.3e-3,), t2=(1.4e-3,))
    machine = Machine({"a1": 0.3e-3, "t1": 0.2e-3, "plain": 0.5e-3})
    assert settled(journal, machine, [each]) == ("autotvm", "t1", 0.2e-3)
    assert machine.asked == [["a1", "t1", "plain"]]
    assert journal.winner(each).times == (0.2e-3,) * 3
    assert journal.store.trials(journal.session.name)[each.task.workload].trials == 3


@pytest.mark.fault("L7")
def test_a_lucky_time_does_not_outlive_the_run_off(journal):
    each = state()
    trials(journal, each, a1=(0.1e-3,), a2=(0.3e-3,), t1=(0.31e-3,))
    assert settled(journal, Machine({"a1": 0.5e-3, "a2": 0.3e-3, "plain": 1.0}), [each])[1] == "a2"


@pytest.mark.fault("L8")
def test_what_is_slower_than_loops_without_threads_never_wins(journal):
    each = state()
    trials(journal, each, a1=(4e-6,))
    machine = Machine({"a1": 4e-6, "plain": 1e-6})
    assert settled(journal, machine, [each]) == ("serial", "plain", 1e-6)
    again = Journal(journal.store, journal.platform, journal.session)
    assert settled(again, machine, [each]) == ("serial", "plain", 1e-6)
    assert len(machine.asked) == 1, "a run that goes on has its run-off already"


@pytest.mark.parametrize(
    "rule",
    [
        Rule(engines=("ansor",), select="first"),
        Rule(engines=("ansor",), implementations=("winograd*", "openblas")),
    ],
)
def test_loops_do_not_stand_in_for_what_a_rule_wants(journal, rule):
    each = state(rule)
    assert not each.admits(SERIAL)
    if rule.implementations is None:
        trials(journal, each, a1=(4e-6,))
        assert settled(journal, Machine({"a1": 4e-6, "plain": 1e-6}), [each])[0] == "ansor"


def test_what_fails_in_the_run_off_does_not_win_it(journal):
    each = state()
    trials(journal, each, a1=(1e-6,), t1=(2e-6,))
    assert settled(journal, Machine({"a1": 0, "t1": 2e-6, "plain": 3e-6}), [each])[1] == "t1"
    other = Journal(journal.store, journal.platform, Session(journal.session.path, "x", 0, 0, 0))
    assert settled(other, Machine(dict.fromkeys(("a1", "t1", "plain"), 0)), [each])[1] == "a1"


def test_what_an_untuned_build_has_takes_part_though_its_trial_was_slow(journal):
    each = state_of(task(flops=0.0), (ANSOR, TEMPLATES), rule=Rule(), starts={STATIC: "s"})
    journal.write(each, Proposal(STATIC, "s"), Measurement((9e-3,)))
    trials(journal, each, a1=(1.1e-3,), t1=(1.2e-3,), t2=(1.3e-3,))
    machine = Machine({"a1": 1.1e-3, "t1": 1.2e-3, "s": 1e-3, "plain": 5e-3})
    assert settled(journal, machine, [each]) == ("static", "s", 1e-3)
    assert machine.asked == [["a1", "t1", "s", "plain"]]


@pytest.mark.parametrize(("seconds", "wins"), [(0.99e-3, "s"), (0.97e-3, "t1")])
def test_what_an_untuned_build_has_stays_unless_another_is_clearly_faster(journal, seconds, wins):
    each = state_of(task(flops=0.0), (ANSOR, TEMPLATES), rule=Rule(), starts={STATIC: "s"})
    journal.write(each, Proposal(STATIC, "s"), Measurement((1e-3,)))
    trials(journal, each, t1=(seconds,))
    machine = Machine({"t1": seconds, "s": 1e-3, "plain": 5e-3})
    assert settled(journal, machine, [each])[1] == wins
    for place in ("in_model", "package"):
        for by, name, times in ((STATIC, "s", (1.0,) * 9), (TEMPLATES, "t1", (0.9,) * 9)):
            journal.append(each, TaskEvidence(Proposal(by, name), place, times))
    assert journal.winner(each).proposal.schedule == "t1"  # as the model decides


def test_a_task_without_a_record_has_no_run_off(journal):
    machine = Machine({})
    assert settled(journal, machine, [state()]) is None
    assert machine.asked == []


@pytest.mark.fault("L9")
@pytest.mark.parametrize("spread", [1.0, 5.0])
def test_a_winner_whose_rounds_differ_is_reported_as_unsteady(journal, spread):
    each = state()
    trials(journal, each, a1=(1e-6,))
    machine = Machine({"a1": 1e-6, "plain": 1e-5}, [spread])
    settled(journal, machine, [each])
    won = journal.winner(each)
    assert max(won.times) / min(won.times) == pytest.approx(spread)
    assert won.is_unsteady == (spread > 1.5)
    (row,) = [row.record for row in journal.rows(each) if row.id == won.row]
    best = BestRecord.model_construct(**row._asdict(), trials=1)  # its schedule is but a name
    report = TuningResult.untuned().report
    (proof,) = list_proofs(journal.store, journal.platform, {row.workload: best}, report).values()
    assert (proof.seconds, proof.steady) == (won.median, not won.is_unsteady)
    assert len(machine.asked) == 1


def planned(plan, module):
    found = plan(module, CONDITIONS)
    assert found is not None
    return found


def test_the_serial_loops_are_those_of_default_without_threads(monkeypatch):
    module = module_of(pool(), [])
    small = module_of(*dense())
    assert planned(loops.plan_serial, small).schedule == planned(default.plan, small).schedule
    monkeypatch.setattr(default, "ELEMENTS", 1)
    plain = planned(loops.plan_serial, module)
    assert "T.parallel" in planned(default.plan, module).module.script()
    assert "T.parallel" not in plain.module.script()
    assert "T.vectorized" in plain.module.script()
    made = replay_schedule(module, "direct", plain.schedule, CONDITIONS)
    assert made.script() == plain.module.script()


def test_a_gpu_has_no_loops_without_threads():
    assert loops.plan_serial(module_of(*dense()), GPU) is None


def test_candidates_are_timed_in_rounds_in_children_of_their_own(tmp_path):
    import subprocess
    import sys
    from pathlib import Path

    done = subprocess.run(
        [sys.executable, "-m", "tests.tuning.test_repeat", str(tmp_path / "made")], check=True,
        capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "7 None 1",  # as a trial, with all repeats
        "4 None 1", "0 ValueError: no 1",
        "4 None 1", "0 ValueError: no 1",  # timed once more, and not built once more
        "4 None 2", "0 ValueError: no 2",  # its child was lost
        "no child is left",
    ]  # fmt: skip


def _broken():
    raise ValueError("no")


def _good(made):
    with made.open("a") as file:
        file.write("x")
    return module_of(*dense())


if __name__ == "__main__":
    import os
    import sys
    from pathlib import Path

    import psutil

    from autopipe.config.tuning import Measure
    from autopipe.measure.local import Local
    from autopipe.measure.measurement import Repeatable

    file = Path(sys.argv[1])

    def tell(results):
        for found in results:
            print(len(found.seconds), found.error, len(file.read_text()))  # noqa: T201

    def good():
        return Repeatable("a task", "direct", "{}", partial(_good, file))

    local = Local(CONDITIONS.target, 2, Measure(repeat=7, min_repeat=0.001))
    tell(local.measure([good()]))
    for _ in range(2):
        tell(local.rounds([good(), _broken], 4))
    (child,) = psutil.Process().children()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    tell(local.rounds([good(), _broken], 4))
    local.close()
    print("no child is left" if not psutil.Process().children() else "a child is left")  # noqa: T201
