"""Runs that replay a lock: what they build, from which records, for which target."""

import hashlib
import json
import sys
from io import BytesIO

import pytest
import tvm

from autopipe.api import flow
from autopipe.cli.app import main
from autopipe.lock import file as files
from autopipe.lock.locking import begin
from autopipe.lock.mode import Mode
from autopipe.signing.sign import sign_file
from autopipe.signing.signature import SignedKind
from autopipe.signing.signers import Signers
from tests.signing import keys
from tests.signing.keys import NEEDED
from tests.system.checkout import (
    checked_in,
    edit,
    finished,
    forget,
    refused,
    resealed,
    run,
    warnings,
)
from tests.traces.hostile import forge


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
    sign_file(BytesIO(path.read_bytes()), path, SignedKind.LOCK, key)
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


def test_plan_names_the_changed_knob_where_only_the_lock_was_ever_replayed(rebuilt):
    edit(rebuilt, "trials: 8", "trials: 16")
    outlooks = {
        outlook.stage: outlook
        for outlook in flow.plan(rebuilt / "mlp.yaml", store=rebuilt / "store")
    }
    assert outlooks["tune"].why == ("configuration.tuning.budget.trials: locked 8, now 16",)


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
def test_records_that_are_not_those_of_the_lock_are_refused(clone):
    (clone / "mlp.records.jsonl").unlink()
    assert refused(clone, Mode.FROZEN)[1].endswith("mlp.records.jsonl is not there")


@pytest.mark.fault("C21", "G8")
def test_a_build_that_is_not_what_the_lock_says_is_not_published(rebuilt):
    lock = files.read_lock(rebuilt / "mlp.lock")
    resealed(rebuilt, artifacts={**lock.artifacts, "lib.so": "00" * 32})
    first, difference = refused(rebuilt, Mode.FROZEN)
    assert first == f"{rebuilt}/mlp.lock: the build differs from the lock"
    assert difference.startswith("  artifacts.lib.so: locked 000000000000, now ")
    assert not (rebuilt / "dist").exists()


def forged(folder, store, command):
    """Put a trace with code in it into the records, and make digest and seal anew."""
    records = folder / "mlp.records.jsonl"
    lock = files.read_lock(folder / "mlp.lock")
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
    assert head.endswith("mlp.records.jsonl: refused, not written by tuning:")
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
