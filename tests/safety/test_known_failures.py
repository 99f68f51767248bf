"""What fails run after run does not cost its deadline in each of them; what passes comes back."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from autopipe.environment.facet import Facet
from autopipe.errors import StageError
from autopipe.processes import contained
from autopipe.processes.contained import Failed
from autopipe.processes.failure import describe_ended, describe_hung
from autopipe.safety import known_failures
from autopipe.safety.failures import Failures, KnownFailure
from autopipe.safety.inspection import Inspector
from autopipe.safety.job import Piece
from autopipe.safety.known_failures import Hopeless
from autopipe.safety.maker import Maker
from autopipe.schedules.policy import Contender
from tests.safety.test_inspection import FACTS, Counting
from tests.schedules import saboteur
from tests.schedules.bad_schedules import doubled, spoil
from tests.schedules.engines.test_static import dense
from tests.schedules.made import failures
from tests.schedules.tasks import CONDITIONS
from tests.schedules.tensors import module_of

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

SEARCH = {"batch": 8, "seed": 0, "tuner": "model", "known": [("{}", "1.0")]}


@pytest.fixture(scope="module")
def workload():
    return module_of(*dense())


@pytest.fixture
def said():
    return []


@pytest.fixture
def run(tmp_path, said):
    """Return the failures of another run of a stage."""

    def run(*, again=False, fatal=False, facts=FACTS):
        return replace(
            failures(tmp_path, said, fatal=fatal),
            hopeless=Hopeless(tmp_path / "hopeless", facts), again=again, stage="tune",
        )  # fmt: skip

    return run


@pytest.fixture
def tries(tmp_path, monkeypatch):
    """Have an implementation that crashes; return what tells how often it was asked."""
    path = tmp_path / "tries"

    def counted(act=saboteur.WAYS["crash"]):
        with path.open("a") as file:
            file.write("x")
        act()

    monkeypatch.setitem(saboteur.WAYS, "crash", counted)
    saboteur.implementation(monkeypatch, "crash")
    return path.read_text


def rewrite(workload, failed: Failures):
    with Maker({"t": workload}, failed) as maker:
        assert "bad" not in maker.implementations("t")
    return failed


@pytest.mark.fault("D7", "D10", "G12")
def test_the_second_run_tries_once_and_the_third_not_at_all(workload, run, tries, said):
    for runs, expected in enumerate(("xx", "xxx", "xxx", "xxx"), 1):
        listed = rewrite(workload, run()).listed["t"]
        assert tries() == expected
        assert len(said) == runs
        assert len(listed) == 1
    assert "task t: rewriting bad failed twice: killed by SIGSEGV; it was put aside" in said[0]
    assert "failed in 2 runs: killed by SIGSEGV; it was put aside" in said[1]
    assert said[2] == (
        "task t: rewriting bad failed in 2 earlier runs: killed by SIGSEGV; it was not tried,"
        " --force tune does"
    )
    assert listed[0].how == "killed by SIGSEGV (known from 2 earlier runs)"
    assert listed[0].retried


def test_a_force_tries_it_as_if_it_were_new(workload, run, tries):
    for _ in range(2):
        rewrite(workload, run())
    rewrite(workload, run(again=True))
    assert tries() == "xxxxx"


def test_what_goes_well_once_is_taken_back(workload, run, tries, monkeypatch):
    rewrite(workload, run())
    with monkeypatch.context() as patch:
        patch.setattr(saboteur.Implementation, "rewrite", lambda *_: None)
        rewrite(workload, run())
    rewrite(workload, run())
    assert tries() == "xxxx"


def test_a_known_failure_can_end_it_all_too(workload, run, tries):
    for _ in range(2):
        rewrite(workload, run())
    with pytest.raises(StageError, match=r"failed in 2 earlier runs: .* on_task_failure|tasks\."):
        rewrite(workload, run(fatal=True))
    assert tries() == "xxx"


def crashed(run, piece, times=2, **fields):
    for _ in range(times):
        run(**fields).add(piece, Failed(describe_hung(120)))


@pytest.fixture
def piece(workload):
    return Piece("searching", "t", workload, "ansor", problem=SEARCH)


def test_one_failure_in_a_run_is_counted_once(run, piece):
    failed = run()
    for _ in range(2):
        failed.add(piece, Failed(describe_ended(-11)))
    assert run().suspect(piece)


def test_another_month_is_another_machine(run, piece, monkeypatch):
    crashed(run, piece)
    with pytest.raises(KnownFailure):
        run().suspect(piece)
    for days, hopeful in ((29, False), (31, True), (-2, True)):
        now = datetime.now(UTC) + timedelta(days=days)
        patched = SimpleNamespace(now=lambda _, now=now: now, fromisoformat=datetime.fromisoformat)
        with monkeypatch.context() as patch:
            patch.setattr(known_failures, "datetime", patched)
            if hopeful:
                assert run().suspect(piece)
            else:
                with pytest.raises(KnownFailure):
                    run().suspect(piece)


RIGHT = {"how": "x", "folder": "/tmp/evil", "runs": 9, "last": "2026-01-01T00:00:00+00:00"}


def test_other_versions_limits_or_work_are_new(run, piece, monkeypatch):
    crashed(run, piece)
    others = (
        replace(piece, implementation="winograd2"), replace(piece, engine="autotvm"),
        replace(piece, schedule="{}"), replace(piece, workload=doubled()),
        replace(piece, problem={**SEARCH, "seed": 1}),
    )  # fmt: skip
    assert not any(run().suspect(other) for other in others)
    assert not run(facts={**FACTS, Facet.TVM: {"tvm": "0.28"}}).suspect(piece)
    templates = {**FACTS, Facet.TEMPLATES: {"window": "2.0"}}
    assert not run(facts=templates).suspect(piece)
    for target, name, value in (
        (contained, "SECONDS", 240.0), (contained, "MEMORY", 1 << 40),
        (known_failures, "version", lambda _: "9"),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(target, name, value)
            assert not run().suspect(piece), name
    with pytest.raises(KnownFailure):
        run().suspect(replace(piece, task="another name", problem={**SEARCH, "known": []}))


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", "\0", '{"how": 1, "folder": "", "runs": "2", "last": "x"}', "[" * 100_000,
        *(json.dumps({**RIGHT, **wrong}) for wrong in (
            {"how": 1}, {"folder": 3}, {"folder": None}, {"runs": "2"}, {"runs": 2.5},
            {"runs": [9]}, {"last": "2999"}, {"last": 1}, {"more": 1}, {"runs": True},
        )),
        json.dumps(RIGHT).replace("9", "1e999"), json.dumps(RIGHT).replace("9", "NaN"),
    ],
)  # fmt: skip
@pytest.mark.fault("K7")
def test_a_damaged_memory_is_forgotten(run, piece, tmp_path, text):
    crashed(run, piece)
    (path,) = (tmp_path / "hopeless").iterdir()
    path.write_text(text)
    assert not run().suspect(piece)
    crashed(run, piece, 1)
    assert json.loads(path.read_text())["runs"] == 1


@pytest.mark.fault("K8")
def test_a_memory_names_no_program_of_another(run, piece, tmp_path, said):
    """Who reads the warning runs what it names."""
    crashed(run, piece)
    (path,) = (tmp_path / "hopeless").iterdir()
    last = json.loads(path.read_text())["last"]
    path.write_text(json.dumps({**RIGHT, "how": "\n::error ::owned", "last": last}))
    with pytest.raises(KnownFailure) as known:
        run().suspect(piece)
    assert known.value.folder == str(tmp_path / "failed" / "evil")
    assert all(text.isprintable() for text in said)


@pytest.mark.fault("K7")
@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"finding": 1}', '{"finding": "right", "reason": 3}', '{"finding": NaN}',
        '{"finding": "right", "folder": []}', "[" * 100_000,
        '{"finding": "right", "finding": "wrong"}',
    ],
)  # fmt: skip
def test_a_verdict_that_is_none_is_forgotten(tmp_path, text):
    from autopipe.safety.inspection import Inspector
    from autopipe.safety.verdict import Finding, Verdict

    (tmp_path / "verdicts").mkdir()
    there: Any = SimpleNamespace(folder=tmp_path)
    (tmp_path / "verdicts" / "a").write_text('{"finding": "right"}')
    assert Inspector._recall(there, "a") == Verdict(Finding.RIGHT)
    (tmp_path / "verdicts" / "a").write_text(text)
    assert Inspector._recall(there, "a") is None


@pytest.mark.fault("G12")
def test_a_check_that_fails_in_every_run_is_not_made_again(run, tmp_path, said):
    from autopipe.safety.verdict import Finding

    body = doubled()
    bad = Piece("checking", "a task", body, "mine", "direct", "{}", spoil(body, "crash"))
    asked, verdicts = [], []
    for _ in range(3):
        checker = Counting(CONDITIONS)
        inspector = Inspector(tmp_path, FACTS, checker, run())
        verdicts += inspector.judge([bad])
        asked.append(checker.checks)
    assert asked == [3, 2, 0]  # the last is of the plain loops, to see who is to blame
    assert all(verdict.finding is Finding.FAILED for verdict in verdicts)
    assert len({verdict.folder for verdict in verdicts}) == 1
    assert verdicts[2].reason is not None
    assert "known from 2 earlier runs" in verdicts[2].reason


def test_a_record_is_replayed_no_more_either(workload, run, tries):
    for expected in ("xx", "xxx", "xxx"):
        with (
            Maker({"t": workload}, run()) as maker,
            pytest.raises(Failed, match="killed by SIGSEGV"),
        ):
            maker.replay("t", Contender("autotvm", "bad"), "[[],[]]")
        assert tries() == expected
