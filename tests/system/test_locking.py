"""Runs with a lock, of a real model: replayed, frozen, refused, brought up to date."""

import json
import sqlite3
from contextlib import closing

import pytest

from autopipe.api import flow
from autopipe.environment.environment import find_version
from autopipe.errors import ConfigError, LockError
from autopipe.lock import file as files
from autopipe.lock.mode import Mode
from autopipe.pipeline.events import StageCached
from tests.system.checkout import (
    checked_in,
    edit,
    finished,
    refused,
    resealed,
    run,
    warnings,
)
from tests.system.conftest import PIPELINE


def test_the_lock_says_what_the_build_was_made_of(locked):
    lock = files.read_lock(locked / "mlp.lock")
    assert [task.calls for task in lock.tasks] == [1, 1, 1, 1]
    assert sum(task.microseconds is not None for task in lock.tasks) == 3
    assert lock.artifacts.keys() == {"lib.so", "weights.safetensors", "mlp.tar"}
    assert lock.versions["tvm"]["tvm"] == find_version("apache-tvm")
    assert lock.target["mcpu"] != "native"
    assert not list(locked.glob(".*")), "a temporary file was left"


def test_the_run_after_the_one_that_tuned_does_nothing(locked):
    before = checked_in(locked)
    outlooks = flow.plan(locked / "mlp.yaml", store=locked / "store")
    assert {outlook.state for outlook in outlooks} == {"cached"}
    told = run(locked)
    assert {event.stage for event in told if isinstance(event, StageCached)} >= {"tune", "package"}
    assert finished(told) == {}
    assert checked_in(locked) == before


@pytest.mark.parametrize("fields", [{"artifacts": {}}, {"records": "0" * 64}])
def test_a_current_lock_with_other_contents_is_written_anew(warm, fields):
    before = checked_in(warm)
    resealed(warm, **fields)
    assert run(warm)[-1].lock == str(warm / "mlp.lock")
    assert checked_in(warm) == before


@pytest.mark.parametrize("update", [{"calls": 7}, {"ops": ("nn.forged",)}])
def test_a_forged_task_in_a_current_lock_is_written_anew(warm, update):
    before = checked_in(warm)
    first, *others = files.read_lock(warm / "mlp.lock").tasks
    resealed(warm, tasks=(first.model_copy(update=update), *others))
    assert run(warm)[-1].lock == str(warm / "mlp.lock")
    assert checked_in(warm) == before


@pytest.mark.fault("C21")
@pytest.mark.parametrize("mode", [Mode.LOCKED, Mode.FROZEN])
def test_a_changed_knob_is_named_and_nothing_is_run(warm, mode):
    edit(warm, "trials: 8", "trials: 16")
    before = checked_in(warm)
    first, *differences = refused(warm, mode)
    assert first.startswith(f"{warm}/mlp.lock: is not current")
    assert differences == ["  configuration.tuning.budget.trials: locked 8, now 16"]
    assert checked_in(warm) == before
    assert not (warm / "dist").exists()


def test_a_run_that_ends_before_the_tasks_needs_a_current_lock_as_well(warm):
    edit(warm, "trials: 8", "trials: 16")
    with pytest.raises(LockError) as caught:
        flow.run(warm / "mlp.yaml", store=warm / "store", until="import", mode=Mode.LOCKED)
    first, *differences = str(caught.value).splitlines()
    assert first.startswith(f"{warm}/mlp.lock: is not current")
    assert differences == ["  configuration.tuning.budget.trials: locked 8, now 16"]


def test_plan_names_the_changed_knob_and_nothing_else(warm):
    edit(warm, "trials: 8", "trials: 16")
    outlooks = {
        outlook.stage: outlook for outlook in flow.plan(warm / "mlp.yaml", store=warm / "store")
    }
    assert [name for name, each in outlooks.items() if each.state == "run"] == [
        "tune", "build", "verify", "package",
    ]  # fmt: skip
    assert outlooks["tune"].why == ("params.tuning.budget.trials changed from 8 to 16",)


def test_what_has_nothing_to_do_with_tuning_changes_the_lock_and_tunes_nothing(locked, warm):
    lock = files.read_lock(warm / "mlp.lock")
    packages = {**lock.versions["packages"], "numpy": "2.0.0"}
    resealed(warm, versions={**lock.versions, "packages": packages})
    edit(warm, "benchmark: null", "verify: {cases: 2}\nbenchmark: null")
    assert refused(warm, Mode.LOCKED)[1:] == [
        "  configuration.verify.cases: locked 3, now 2",
        f'  versions.packages.numpy: locked "2.0.0", now "{find_version("numpy")}"',
    ]
    assert finished(run(warm)).keys() == {"verify", "package"}
    new, old = (files.read_lock(folder / "mlp.lock") for folder in (warm, locked))
    assert new.configuration["verify"]["cases"] == 2
    assert (new.versions, new.tasks, new.records) == (old.versions, old.tasks, old.records)


@pytest.mark.fault("C21")
def test_stale_tasks_are_named_for_a_changed_model(warm):
    edit(warm, "[8, 128]", "[4, 128]")
    _, first, *stale = refused(warm, Mode.LOCKED)
    assert first == "  configuration.model.inputs.input.shape: locked [8, 128], now [4, 128]"
    assert len(stale) == 3
    assert all(line.endswith("stale, its loops are others now") for line in stale)


@pytest.mark.fault("C21")
@pytest.mark.parametrize("mode", [Mode.LOCKED, Mode.FROZEN])
def test_without_a_lock_there_is_nothing_to_hold_to(clone, mode):
    (clone / "mlp.lock").unlink()
    assert refused(clone, mode) == [
        f"{clone}/mlp.lock: is not there; `autopipe run` without --{mode} writes it"
    ]


@pytest.mark.fault("C20")
@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.LOCKED, Mode.FROZEN, Mode.UPDATE])
def test_a_conflict_ends_the_run_with_its_line_and_is_not_written_over(clone, mode):
    edit(clone, "stages:\n", "<<<<<<< HEAD\nstages:\n", "mlp.lock")
    before = checked_in(clone)
    assert ": a merge conflict" in refused(clone, mode)[0]
    assert checked_in(clone) == before


def test_a_run_that_was_killed_between_lock_and_records_is_taken_up(locked, warm):
    """As if the records of a new lock were written, and then the power went."""
    edit(warm, '"trials": 1', '"trials": 2', "mlp.records.jsonl")
    told = run(warm)
    assert "is not current and will be written anew: records: locked" in warnings(told)[0]
    assert finished(told) == {}, "tuning is cached, and so is all that follows"
    assert checked_in(warm) == checked_in(locked)


def test_an_update_tunes_only_what_the_lock_does_not_know(locked, warm):
    edit(warm, "tasks: {", "tasks: {heuristics: {min_flops: 0}, ")
    store = warm / "store/records/records.sqlite"
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("DELETE FROM records")
        connection.commit()
    told = run(warm, Mode.UPDATE)
    said = "3 tasks as the lock says, their times are unverified; the others: "
    assert finished(told)["tune"].startswith(said)
    with closing(sqlite3.connect(store)) as connection:
        (workloads,) = connection.execute("SELECT count(DISTINCT workload) FROM records").fetchone()
    assert workloads == 1, "tasks that the lock knows were measured again"
    old, new = (files.read_lock(folder / "mlp.lock") for folder in (locked, warm))
    assert [task for task in new.tasks if task.ops != ("nn.softmax",)] == [
        task for task in old.tasks if task.ops != ("nn.softmax",)
    ]
    assert next(task for task in new.tasks if task.ops == ("nn.softmax",)).microseconds
    assert finished(run(warm)) == {}


@pytest.mark.parametrize("part", [{"overrides": ["verify.cases=1"]}, {"until": "build"}])
def test_an_update_is_of_the_whole_file(clone, part):
    with pytest.raises(ConfigError, match="--update writes the lock of the whole file"):
        run(clone, Mode.UPDATE, **part)


def test_overrides_and_partial_runs_leave_the_lock_alone(warm):
    before = checked_in(warm)
    told = run(warm, overrides=["verify.cases=1"])
    assert (told[-1].lock, told[-1].unlocked) == (None, "no lock is written with --set")
    assert run(warm, until="build", force=["build"])[-1].unlocked is None
    assert checked_in(warm) == before


def test_without_tuning_there_is_a_lock_and_there_are_no_records(warm):
    edit(warm, PIPELINE[PIPELINE.index("tuning:") : PIPELINE.index("benchmark")], "tuning: null\n")
    told = run(warm)
    assert told[-1].lock == str(warm / "mlp.lock")
    assert files.read_lock(warm / "mlp.lock").records is None
    assert not (warm / "mlp.records.jsonl").exists()
    assert run(warm, Mode.FROZEN)[-1].exit_code == 0


def test_no_lock_neither_reads_nor_writes(warm):
    (warm / "mlp.lock").write_text("<<<<<<< HEAD\n")
    assert run(warm, Mode.OFF)[-1].lock is None
    assert json.dumps(checked_in(warm)["mlp.lock"].decode()) == '"<<<<<<< HEAD\\n"'
