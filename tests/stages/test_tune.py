import json
import math
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from pydantic import ValidationError

from autopipe.config.pipeline import Pipeline
from autopipe.config.tuning import Tuning
from autopipe.environment import environment
from autopipe.environment.facet import Facet
from autopipe.errors import SetupError, TargetError
from autopipe.host import distributions
from autopipe.measure.turn import Turn
from autopipe.pipeline.events import TuningProgress, parse
from autopipe.records.merge import add_claims
from autopipe.records.store import RecordStore
from autopipe.schedules.policy import PLAIN
from autopipe.stages.tune import TuneStage
from tests.stages import small_tuning

ROOT = Path(__file__).parents[2]
WORKLOAD = f"{0:016x}"


DOCUMENT = {"version": 1, "name": "x", "model": {"path": "x.onnx"}}


def variables():
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


def tune(folder, trials, seconds=None):
    """Tune in a process of its own: a fork of this one may lack threads of TVM's pool."""
    words = [str(trials), *([] if seconds is None else [str(seconds)])]
    program = [sys.executable, "-m", "tests.stages.small_tuning", folder, *words]
    return subprocess.run(
        program, cwd=ROOT, env=variables(), capture_output=True, text=True, timeout=120, check=False
    )


def rows(folder):
    with closing(sqlite3.connect(folder / "records.sqlite")) as connection:
        return connection.execute("SELECT session, error FROM records").fetchall()


def run_off(row):
    return row[0].endswith("/run-off")


def enough(folder):
    if not (folder / "records.sqlite").exists():
        return False
    with suppress(sqlite3.OperationalError):  # not made yet
        return len(rows(folder)) >= 8
    return False


def test_nothing_is_measured_for_a_processor_that_is_not_here(context, tmp_path):
    (tmp_path / "tasks").mkdir()
    ctx = context(tasks=tmp_path / "tasks")
    elsewhere = {"mcpu": "pwr9", "mtriple": "powerpc64le-linux-gnu"}
    target = {**ctx.facts[Facet.TARGET], **elsewhere}
    pipeline = Pipeline.model_validate({"version": 1, "name": "p", "model": {"path": "m.onnx"}})
    stage = TuneStage.of(pipeline, tmp_path)
    assert stage is not None
    with pytest.raises(TargetError, match="built for powerpc64le, this machine is"):
        stage.run(ctx._replace(facts={Facet.TARGET: target}))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    done = tune(folder, 12)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_the_best_record_of_each_tuned_task_is_the_artifact(tuned):
    import tvm

    from autopipe.schedules.conditions import Conditions
    from autopipe.schedules.replay import replay_schedule

    folder, _ = tuned
    (line,) = (folder / "out/records.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert (record["workload"], record["trials"]) == (WORKLOAD, 12)
    assert 0 < record["seconds"][0] < 0.1
    module = tvm.ir.load_json((folder / f"tasks/workloads/{WORKLOAD}.json").read_text())
    conditions = Conditions.of(small_tuning.FACTS[Facet.TARGET], fast_algorithms=True)
    scheduled = replay_schedule(module, record["implementation"], record["schedule"], conditions)
    assert "T.vectorized" in scheduled.script()


def test_the_report_says_how_each_task_went(tuned):
    folder, done = tuned
    report = json.loads((folder / "out/tuning.json").read_text())
    (task,) = report["tasks"]
    assert report["ended"] == "all trials are spent"
    assert task["trials"] == 12
    assert "12 trials" in done.stdout
    assert "; of the time 100% searched, 100% measured, " in done.stdout
    assert report["shares"]["searched"] == report["shares"]["measured"] == 1.0


def test_the_fallback_is_timed_first_and_what_is_clearly_faster_wins(tuned):
    folder, _ = tuned
    with closing(sqlite3.connect(folder / "records.sqlite")) as connection:
        query = "SELECT engine, seconds, session LIKE '%/run-off' FROM records ORDER BY id"
        found = connection.execute(query).fetchall()
    assert next(engine for engine, *_ in found) == "static"
    plain_loops = {by.engine for by in PLAIN}  # where they may be fast enough
    engines = {engine for engine, *_ in found} - plain_loops
    assert engines == {"static", "autotvm", "ansor"}
    trials: dict[str, list[float]] = {}
    run_off: dict[str, list[float]] = {}
    for engine, seconds, settled in found:
        times = sorted(json.loads(seconds))
        middle = times[len(times) // 2] if times else math.inf
        (run_off if settled else trials).setdefault(engine, []).append(middle)
    (task,) = json.loads((folder / "out/tuning.json").read_text())["tasks"]
    best = {contender["engine"]: contender["seconds"] for contender in task["contenders"]}
    assert set(best) == {*trials, *run_off}
    for engine, seconds in best.items():  # an unsteady run-off is repeated, and the steadier kept
        assert seconds in run_off[engine] if engine in run_off else seconds == min(trials[engine])
    fastest = min(run_off, key=lambda engine: best[engine])
    stays = best["static"] <= 1.02 * best[fastest]
    assert task["engine"] == ("static" if stays else fastest)
    assert task["seconds"] == best[task["engine"]]
    assert sum(each["trials"] for each in task["contenders"]) == 12
    rest = [seconds for engine, seconds in best.items() if engine != task["engine"]]
    assert task["over_next"] == pytest.approx(min(rest) / task["seconds"])
    assert task["over_start"] == pytest.approx(best["static"] / task["seconds"])
    assert (task["rule"], task["share"]) == (0, 1.0)


def test_progress_counts_to_the_budget(tuned):
    _, done = tuned
    events = [parse.validate_json(line) for line in done.stderr.splitlines()]
    last = next(event for event in reversed(events) if isinstance(event, TuningProgress))
    assert (last.trials, last.failed, last.budget) == (12, 0, 12)
    assert last.latency


@pytest.mark.fault("L1")
def test_a_claim_that_would_win_is_measured_first(tuned, tmp_path):
    """As from a farm of the same machines: 12 ns, where the best takes microseconds."""
    folder, _ = tuned
    store = tmp_path / "records.sqlite"
    with (
        RecordStore.open(folder / "records.sqlite", pytest.fail) as other,
        RecordStore.open(store, pytest.fail) as own,
    ):
        one = next(each for each in other.every() if each.record.engine == "autotvm")
        claim = one._replace(record=one.record._replace(seconds=(12e-9,), cut=False))
        add_claims(own, [claim])
    assert tune(tmp_path, 2).returncode == 0
    (line,) = (tmp_path / "out/records.jsonl").read_text().splitlines()
    assert min(json.loads(line)["seconds"]) > 100e-9
    with RecordStore.view(store) as own:
        same = [each for each in own.every() if each.record.schedule == claim.record.schedule]
        assert [each.here for each in same][:2] == [False, True]


@pytest.mark.fault("D1")
def test_the_same_run_again_measures_nothing(tuned):
    """A winner that a busy machine has made unsteady is timed again, which is no trial."""
    folder, done = tuned
    before = rows(folder)
    assert tune(folder, 12).returncode == 0
    after = rows(folder)
    if "are unsteady: the machine was busy" in done.stdout:
        before, after = ([row for row in every if not run_off(row)] for every in (before, after))
    assert after == before


@pytest.mark.fault("D1", "G10")
def test_a_killed_run_goes_on_where_it_was(tmp_path):
    program = [sys.executable, "-m", "tests.stages.small_tuning", tmp_path, "1000"]
    null = subprocess.DEVNULL
    with subprocess.Popen(program, cwd=ROOT, env=variables(), stdout=null, stderr=null) as killed:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not enough(tmp_path):
            time.sleep(0.02)
        killed.kill()
    kept = len(rows(tmp_path))
    assert 8 <= kept < 1000
    done = tune(tmp_path, kept + 4)
    assert done.returncode == 0, done.stderr
    found = [row for row in rows(tmp_path) if not run_off(row)]
    assert len(found) == kept + 4
    assert len({session for session, _ in found}) == 1
    assert f"{kept + 4} trials" in done.stdout


@pytest.mark.fault("D20")
@pytest.mark.parametrize(
    ("trials", "seconds", "said"),
    [
        (1, None, "1 trials (0 failed); of the time 0% searched, 100% measured, "),
        (500, 1.0, "; the time is spent"),
    ],
)
def test_a_budget_that_is_hardly_one_ends_well(tmp_path, trials, seconds, said):
    done = tune(tmp_path, trials, seconds)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


@pytest.mark.fault("D17", "D20")
def test_a_budget_of_time_ends_while_another_program_times(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with Turn(pytest.fail).taken():
        done = tune(tmp_path, 500, 2.0)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0 trials (0 failed), no time for tasks (1); ")
    assert json.loads((tmp_path / "out/tuning.json").read_text())["left_out"] == ["tasks (1)"]


@pytest.mark.fault("D20")
def test_a_budget_of_no_trials_is_refused():
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        Tuning.model_validate({"budget": {"trials": 0}})


@pytest.mark.fault("D19")
@pytest.mark.parametrize("package", ["xgboost-cpu", "psutil", "cloudpickle"])
def test_a_missing_package_is_named_before_anything_is_tuned(tmp_path, monkeypatch, package):
    found = distributions.find_installed_version
    monkeypatch.setattr(
        environment, "find_installed_version", lambda name: None if name == package else found(name)
    )
    stage = TuneStage.of(Pipeline.model_validate(DOCUMENT), tmp_path)
    assert stage is not None
    with pytest.raises(SetupError, match=f"{package} is not installed; pip install '{package}"):
        stage.run(small_tuning.context(tmp_path))
    assert not (tmp_path / "records.sqlite").exists()


@pytest.mark.fault("D11")
def test_nothing_measured_at_all_is_an_error_and_not_remembered(tmp_path):
    small_tuning.context(tmp_path)
    (tmp_path / f"tasks/workloads/{WORKLOAD}.json").write_text("{}")
    done = tune(tmp_path, 4)
    assert done.returncode != 0


def test_no_tuning_no_stage():
    assert TuneStage.of(Pipeline.model_validate({**DOCUMENT, "tuning": None}), Path()) is None
    stage = TuneStage.of(Pipeline.model_validate(DOCUMENT), Path())
    assert stage is not None
    assert stage.tuning.budget.trials == 1000
    assert stage.rules[0].engines == ("autotvm", "ansor")
