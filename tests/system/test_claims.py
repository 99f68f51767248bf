"""What a lock or a remote says of times builds, and passes no gate."""

import json
import shutil
import sqlite3
from contextlib import closing
from hashlib import sha256

import pytest
from typer.testing import CliRunner

from autopipe.cli.app import build_app
from autopipe.errors import GateError
from autopipe.lock import file as files
from autopipe.lock import text
from autopipe.lock.mode import Mode
from autopipe.lock.outline import _to_microseconds
from autopipe.pipeline.events import StageCached, StageFinished, Tuned, Warn
from tests.system.checkout import checked_in, edit, refused, run

NOTHING = '[[["EnterPostproc", [], [], []]], []]'
"""A trace that schedules nothing."""


def forged(folder, **fields):
    """Change the first record beside a lock and seal the lock again, as a forger would."""
    lines = (folder / "mlp.records.jsonl").read_text().splitlines()
    value = json.loads(lines[1])
    value["record"].update(fields)
    lines[1] = json.dumps(value, sort_keys=True)
    records = "".join(f"{line}\n" for line in lines)
    (folder / "mlp.records.jsonl").write_text(records)
    digest = sha256(records.encode()).hexdigest()
    lock = files.read_lock(folder / "mlp.lock").model_copy(update={"records": digest})
    (folder / "mlp.lock").write_text(text.format_lock(lock))
    return value["tuning"]["name"]


def told_of(told):
    (found,) = [event for event in told if isinstance(event, Tuned)]
    return found


@pytest.mark.fault("L4")
@pytest.mark.parametrize("mode", [Mode.FROZEN, Mode.UPDATE])
def test_a_lock_with_a_time_that_can_not_be_is_refused_by_name(warm, mode):
    name = forged(warm, seconds=[1e-15] * 3, schedule=NOTHING, engine="ansor")
    if mode is Mode.UPDATE:
        edit(warm, "tasks: {", "tasks: {heuristics: {min_flops: 0}, ")
    before = checked_in(warm)
    first, *told = refused(warm, mode)
    assert first.endswith("mlp.records.jsonl: times that cannot be true; tune again")
    assert told == [f"  task {name}: 1.0e-15 s, which no processor reaches"]
    assert checked_in(warm) == before
    assert not (warm / "dist").exists()


@pytest.mark.fault("L3", "L5")
def test_a_frozen_build_of_a_lock_passes_no_gate_on_tuning(warm):
    (warm / "store/records/records.sqlite").unlink()
    told = told_of(run(warm, Mode.FROZEN))
    assert (told.searched, told.measured, told.steady, told.claimed) == (0.0, 0.0, 0.0, 3)
    for gate in ("searched", "measured", "steady"):
        with pytest.raises(GateError, match=rf"gates.{gate}_share: 0\.0% of .* --force tune"):
            run(warm, Mode.FROZEN, overrides=[f"gates.{gate}_share=0.1"])


@pytest.mark.fault("L3")
def test_what_was_measured_here_passes_as_long_as_the_records_say_so(warm):
    gate = {"overrides": ["gates.measured_share=1.0"]}
    told = run(warm, Mode.FROZEN, **gate)
    assert (told_of(told).measured, told_of(told).claimed) == (1.0, 0)
    with pytest.raises(GateError, match=r"gates.searched_share: \d+\.\d% of .*; raise tun"):
        run(warm, Mode.FROZEN, overrides=["gates.searched_share=1.0"])
    with closing(sqlite3.connect(warm / "store/records/records.sqlite")) as connection:
        connection.execute("UPDATE records SET here = 0")
        connection.commit()
    why = r"gates.measured_share: 0\.0% of .*; 3 winners have unverified times"
    with pytest.raises(GateError, match=why):
        run(warm, Mode.FROZEN, **gate)


@pytest.mark.fault("L5")
def test_records_of_a_remote_are_claims_too(locked, clone, tmp_path):
    """The farm's very store, without what it has measured, is what a remote gives."""
    for name in ("mlp.lock", "mlp.records.jsonl"):
        (clone / name).unlink()
    shutil.copytree(locked / "store/actions", clone / "store/actions")
    shutil.copytree(locked / "store/objects", clone / "store/objects")
    with pytest.raises(GateError, match=r"gates.measured_share: 0\.0% .* or a remote"):
        run(clone, Mode.OFF, overrides=["gates.measured_share=0.1"])
    told = run(clone, Mode.OFF)
    assert [event.stage for event in told if isinstance(event, StageCached)][-1] == "package"
    assert told_of(told).claimed == 3
    assert not [event for event in told if isinstance(event, StageFinished | Warn)]


@pytest.mark.fault("L5")
def test_all_that_a_machine_made_is_taken_from_its_remote(locked, clone, tmp_path):
    """What stages really leave has the shape that is asked of what a remote gives."""
    remote = f"cache.remote={tmp_path / 'remote'}"
    for name in ("mlp.lock", "mlp.records.jsonl"):
        (clone / name).unlink()
    pushed = ["cache", "push", str(tmp_path / "remote"), "--store", str(locked / "store")]
    assert CliRunner().invoke(build_app(), pushed).exit_code == 0
    told = run(clone, Mode.OFF, overrides=[remote])
    assert not [event for event in told if isinstance(event, StageFinished | Warn)]
    taken = [event.stage for event in told if isinstance(event, StageCached) and event.fetched]
    assert taken == ["import", "optimize", "lower", "tasks", "tune", "build", "verify", "package"]
    assert told_of(told).claimed == 3


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [([4.5e-6, 5e-6, 4e-6], (4.0, 4.5, 5.0)), ([2.5e-10], (2.5e-4,) * 3)],
)
def test_no_time_is_written_down_as_nothing(seconds, shown):
    assert _to_microseconds(seconds) == shown
