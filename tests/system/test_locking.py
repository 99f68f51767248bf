"""Runs with a lock, of a real model: replayed, frozen, refused, brought up to date."""

import hashlib
import json
import sqlite3
import sys
from contextlib import closing
from io import BytesIO

import pytest
import tvm

from autopipe.__main__ import main
from autopipe.api import flow
from autopipe.environment.environment import version
from autopipe.errors import ConfigError, LockError
from autopipe.lock import file as files
from autopipe.lock import text
from autopipe.lock.locking import Mode, begin
from autopipe.pipeline.events import Event, StageCached, StageFinished, Warn
from autopipe.signing.sign import sign
from autopipe.signing.signature import SignedKind
from autopipe.signing.signers import Signers
from tests.signing import keys
from tests.signing.keys import NEEDED
from tests.system.conftest import PIPELINE
from tests.traces.hostile import forge


def run(folder, mode=Mode.AUTO, **options):
    """Run the pipeline and return what was told."""
    told: list[Event] = []
    flow.run(
        folder / "mlp.yaml", store=folder / "store", output=folder / "dist", mode=mode,
        emit=told.append, **options,
    )  # fmt: skip
    return told


def refused(folder, mode, **options):
    with pytest.raises(LockError) as caught:
        run(folder, mode, **options)
    assert caught.value.exit_code == 6
    return str(caught.value).splitlines()


def checked_in(folder):
    names = ("mlp.yaml", "mlp.lock", "mlp.records.jsonl")
    return {name: (folder / name).read_bytes() for name in names}


def edit(folder, old, new, name="mlp.yaml"):
    before = (folder / name).read_text()
    assert old in before
    (folder / name).write_text(before.replace(old, new))


def resealed(folder, **fields):
    """Change fields of the lock as only a forger would."""
    lock = files.read(folder / "mlp.lock").model_copy(update=fields)
    (folder / "mlp.lock").write_text(text.write(lock))


def forget(folder, stage):
    """Have the store know nothing of a stage."""
    found = [
        path
        for path in (folder / "store/actions").glob("*.json")
        if f'"stage":"{stage}"' in path.read_text().replace(" ", "")
    ]
    assert found
    for path in found:
        path.unlink()


def finished(told):
    return {event.stage: event.summary for event in told if isinstance(event, StageFinished)}


def warnings(told):
    return [event.message for event in told if isinstance(event, Warn)]


def test_the_lock_says_what_the_build_was_made_of(locked):
    lock = files.read(locked / "mlp.lock")
    assert [task.calls for task in lock.tasks] == [1, 1, 1, 1]
    assert sum(task.microseconds is not None for task in lock.tasks) == 3
    assert lock.artifacts.keys() == {"lib.so", "weights.safetensors", "mlp.tar"}
    assert lock.versions["tvm"]["tvm"] == version("apache-tvm")
    assert lock.target["mcpu"] != "native"
    assert not list(locked.glob(".*")), "a temporary file was left"


@pytest.mark.fault("C21", "G8", "G9")
def test_a_frozen_run_in_a_fresh_clone_makes_the_same_bytes_and_asks_no_network(locked, replayed):
    assert "3 of 3 tasks tuned, as the lock says" in (replayed / "said").read_text()
    assert (replayed / "dist/mlp.tar").read_bytes() == (locked / "dist/mlp.tar").read_bytes()
    assert checked_in(replayed) == checked_in(locked)
    assert not (replayed / "store/records/records.sqlite").exists(), "something was tuned"
    assert list((replayed / "TMPDIR").iterdir()) == []


@pytest.mark.fault("C4", "C6", "G3")
@NEEDED
@pytest.mark.fault("N10", "N11")
@pytest.mark.parametrize("mode", [Mode.FROZEN, Mode.LOCKED])
def test_a_signed_lock_builds_what_was_signed_though_its_records_are_exchanged(
    locked, warm, tmp_path, monkeypatch, mode
):
    """The store knows all but what is replayed from the lock."""
    forget(warm, "tune")
    key = keys.key(tmp_path, "alice")
    path = warm / "mlp.lock"
    sign(BytesIO(path.read_bytes()), path, SignedKind.LOCK, key)
    signers = Signers(keys.signers(tmp_path, f"alice {keys.public(key)}"))

    def exchange(*arguments, **options):
        locking = begin(*arguments, **options)
        (warm / "mlp.records.jsonl").write_text("not what was signed")
        return locking

    monkeypatch.setattr(flow, "begin", exchange)
    told = run(warm, mode, signers=signers)
    assert "tune" in finished(told)
    assert (warm / "dist/mlp.tar").read_bytes() == (locked / "dist/mlp.tar").read_bytes()
    assert "records.jsonl: not the records that mlp.lock" in refused(warm, mode, signers=signers)[0]


def test_a_frozen_run_over_a_damaged_store_builds_what_is_damaged_again(locked, rebuilt):
    before = checked_in(rebuilt)
    (library,) = (rebuilt / "store/objects").rglob("lib.so")
    library.chmod(0o600)
    data = bytearray(library.read_bytes())
    data[len(data) // 2] ^= 1
    library.write_bytes(data)
    told = run(rebuilt, Mode.FROZEN)
    assert [text.split(";")[1] for text in warnings(told)] == [" recomputed"]
    assert finished(told).keys() == {"build"}, "what follows has the same input again"
    assert (rebuilt / "dist/mlp.tar").read_bytes() == (locked / "dist/mlp.tar").read_bytes()
    assert checked_in(rebuilt) == before


def test_a_current_lock_stands_in_for_tuning_and_stays_as_it_is(rebuilt):
    """The store knows all but what stands in for tuning."""
    forget(rebuilt, "tune")
    before = checked_in(rebuilt)
    assert "as the lock says" in finished(run(rebuilt))["tune"]
    assert checked_in(rebuilt) == before
    assert run(rebuilt, Mode.LOCKED, until="build")[-1].exit_code == 0


def test_the_run_after_the_one_that_tuned_does_nothing(locked):
    before = checked_in(locked)
    outlooks = flow.plan(locked / "mlp.yaml", store=locked / "store")
    assert {outlook.state for outlook in outlooks} == {"cached"}
    told = run(locked)
    assert {event.stage for event in told if isinstance(event, StageCached)} >= {"tune", "package"}
    assert finished(told) == {}
    assert checked_in(locked) == before


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


def test_plan_names_the_changed_knob_and_nothing_else(warm):
    edit(warm, "trials: 8", "trials: 16")
    outlooks = {
        outlook.stage: outlook for outlook in flow.plan(warm / "mlp.yaml", store=warm / "store")
    }
    assert [name for name, each in outlooks.items() if each.state == "run"] == [
        "tune", "build", "verify", "package",
    ]  # fmt: skip
    assert outlooks["tune"].why == ("params.tuning.budget.trials: 8 -> 16",)


def test_plan_names_the_changed_knob_where_only_the_lock_was_ever_replayed(rebuilt):
    edit(rebuilt, "trials: 8", "trials: 16")
    outlooks = {
        outlook.stage: outlook
        for outlook in flow.plan(rebuilt / "mlp.yaml", store=rebuilt / "store")
    }
    assert outlooks["tune"].why == ("configuration.tuning.budget.trials: locked 8, now 16",)


def test_what_has_nothing_to_do_with_tuning_changes_the_lock_and_tunes_nothing(locked, warm):
    lock = files.read(warm / "mlp.lock")
    packages = {**lock.versions["packages"], "numpy": "2.0.0"}
    resealed(warm, versions={**lock.versions, "packages": packages})
    edit(warm, "benchmark: null", "verify: {cases: 2}\nbenchmark: null")
    assert refused(warm, Mode.LOCKED)[1:] == [
        "  configuration.verify.cases: locked 3, now 2",
        f'  versions.packages.numpy: locked "2.0.0", now "{version("numpy")}"',
    ]
    assert finished(run(warm)).keys() == {"verify", "package"}
    new, old = (files.read(folder / "mlp.lock") for folder in (warm, locked))
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
def test_a_frozen_run_is_for_the_target_of_the_lock(locked, rebuilt, monkeypatch):
    """The store knows all for that target but the build, which is made here."""
    from autopipe.environment import environment

    recall = environment._recall

    def other_machine(store):
        stack = recall(store)
        return stack and {**stack, "mcpu": "x86-64-v2"}

    monkeypatch.setattr(environment, "_recall", other_machine)
    lines = refused(rebuilt, Mode.LOCKED)
    assert any(line.startswith("  target.mcpu: locked") for line in lines)
    forget(rebuilt, "build")
    assert finished(run(rebuilt, Mode.FROZEN)).keys() == {"build"}
    assert (rebuilt / "dist/mlp.tar").read_bytes() == (locked / "dist/mlp.tar").read_bytes()


@pytest.mark.fault("C21")
@pytest.mark.parametrize("mode", [Mode.LOCKED, Mode.FROZEN])
def test_without_a_lock_there_is_nothing_to_hold_to(clone, mode):
    (clone / "mlp.lock").unlink()
    assert refused(clone, mode) == [
        f"{clone}/mlp.lock: is not there; `autopipe run` without --{mode} writes it"
    ]


@pytest.mark.fault("C21")
def test_records_that_are_not_those_of_the_lock_are_refused(clone):
    (clone / "mlp.records.jsonl").unlink()
    assert refused(clone, Mode.FROZEN)[1].endswith("mlp.records.jsonl is not there")


@pytest.mark.fault("C20")
@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.LOCKED, Mode.FROZEN, Mode.UPDATE])
def test_a_conflict_ends_the_run_with_its_line_and_is_not_written_over(clone, mode):
    edit(clone, "stages:\n", "<<<<<<< HEAD\nstages:\n", "mlp.lock")
    before = checked_in(clone)
    assert ": a merge conflict" in refused(clone, mode)[0]
    assert checked_in(clone) == before


@pytest.mark.fault("C21", "G8")
def test_a_build_that_is_not_what_the_lock_says_is_not_published(rebuilt):
    lock = files.read(rebuilt / "mlp.lock")
    resealed(rebuilt, artifacts={**lock.artifacts, "lib.so": "00" * 32})
    first, difference = refused(rebuilt, Mode.FROZEN)
    assert first == f"{rebuilt}/mlp.lock: the build is not what it says"
    assert difference.startswith("  artifacts.lib.so: locked 000000000000, now ")
    assert not (rebuilt / "dist").exists()


def test_a_run_that_was_killed_between_lock_and_records_is_taken_up(locked, warm):
    """As if the records of a new lock were written, and then the power went."""
    edit(warm, '"trials": 1', '"trials": 2', "mlp.records.jsonl")
    told = run(warm)
    assert "is not current and will be written anew: records: locked" in warnings(told)[0]
    assert finished(told) == {}, "tuning is cached, and so is all that follows"
    assert checked_in(warm) == checked_in(locked)


def test_an_update_tunes_only_what_the_lock_does_not_know(locked, warm):
    edit(warm, "benchmark: null", "tasks:\n  heuristics: {min_flops: 0}\nbenchmark: null")
    store = warm / "store/records/records.sqlite"
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("DELETE FROM records")
        connection.commit()
    told = run(warm, Mode.UPDATE)
    said = "3 tasks as the lock says, their times are claims; the others: "
    assert finished(told)["tune"].startswith(said)
    with closing(sqlite3.connect(store)) as connection:
        (workloads,) = connection.execute("SELECT count(DISTINCT workload) FROM records").fetchone()
    assert workloads == 1, "tasks that the lock knows were measured again"
    old, new = (files.read(folder / "mlp.lock") for folder in (locked, warm))
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
    run(warm, overrides=["verify.cases=1"])
    run(warm, until="build", force=["build"])
    assert checked_in(warm) == before


def test_without_tuning_there_is_a_lock_and_there_are_no_records(warm):
    edit(warm, PIPELINE[PIPELINE.index("tuning:") : PIPELINE.index("benchmark")], "tuning: null\n")
    told = run(warm)
    assert told[-1].lock == str(warm / "mlp.lock")
    assert files.read(warm / "mlp.lock").records is None
    assert not (warm / "mlp.records.jsonl").exists()
    assert run(warm, Mode.FROZEN)[-1].exit_code == 0


def test_no_lock_neither_reads_nor_writes(warm):
    (warm / "mlp.lock").write_text("<<<<<<< HEAD\n")
    assert run(warm, Mode.OFF)[-1].lock is None
    assert json.dumps(checked_in(warm)["mlp.lock"].decode()) == '"<<<<<<< HEAD\\n"'


def forged(folder, store, command):
    """Put a trace with code in it into the records, and make digest and seal anew."""
    records = folder / "mlp.records.jsonl"
    lock = files.read(folder / "mlp.lock")
    victim = lock.tasks[0]
    (module,) = {path.read_text() for path in store.glob(f"**/workloads/{victim.workload}.json")}
    code = forge(tvm.ir.load_json(module), command)
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    for line in lines:
        if line.get("record") and line["record"]["workload"] == victim.workload:
            line["record"].update(engine="ansor", schedule=code)
    records.write_text("".join(f"{json.dumps(line, sort_keys=True)}\n" for line in lines))
    digest = f"trace {hashlib.sha256(code.encode()).hexdigest()[:12]}"
    changed = victim.model_copy(update={"engine": "ansor", "schedule": digest})
    resealed(
        folder,
        tasks=(changed, *lock.tasks[1:]),
        records=hashlib.sha256(records.read_bytes()).hexdigest(),
    )
    return victim.workload


@pytest.mark.fault("H1")
@pytest.mark.parametrize("mode", [Mode.FROZEN, Mode.LOCKED, Mode.AUTO])
def test_a_lock_with_code_in_a_trace_is_refused_and_nothing_of_it_runs(
    locked, warm, tmp_path, mode
):
    workload = forged(warm, locked / "store", f"touch {tmp_path / 'marker'}")
    before = checked_in(warm)
    head, told = refused(warm, mode)
    assert head.endswith("mlp.records.jsonl: refused, nobody's tuning wrote this:")
    assert f"(workload {workload}), engine ansor: instruction 3, Annotate: key may not" in told
    assert '"pragma_import_llvm"' in told
    assert checked_in(warm) == before
    assert not (tmp_path / "marker").exists()


@pytest.mark.fault("H6")
def test_verify_and_diff_say_what_a_forged_trace_does(locked, clone, capsys, monkeypatch):
    forged(clone, locked / "store", "touch /tmp/marker")
    why = 'would be refused: instruction 3, Annotate: key may not be "pragma_import_llvm"'
    package, locks = (
        str(locked / "dist/mlp.tar"),
        (str(locked / "mlp.lock"), str(clone / "mlp.lock")),
    )
    for arguments, code in (
        (["verify", package, "--lock", locks[1]], 6),
        (["diff", *locks], 0),
        (["diff", "--format", "markdown", *locks], 0),
        (["diff", "--format", "json", *locks], 0),
    ):
        monkeypatch.setattr(sys, "argv", ["autopipe", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        done = capsys.readouterr()
        assert end.value.code == code, done.err
        said = " ".join(done.out.replace('\\"', '"').split())
        assert why in said, (arguments, done.out)
