"""Databases of MetaSchedule."""

import base64
import json

import pytest
import tvm
from tvm import te
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from autopipe.compiler.tasks import make_workload
from autopipe.records.importing import import_records
from autopipe.records.metaschedule import TRIALS, WORKLOADS, read_database
from autopipe.records.store import RecordStore
from autopipe.schedules.replay import apply_trace
from tests.records.written import HERE
from tests.traces.hostile import forge

WRONG = [[["Fuse", ["l9"], [], ["l1"]]], []]
HOST = {"kind": "llvm", "mcpu": "znver4", "num-cores": 2}


@pytest.fixture(scope="module")
def module():
    x, y = te.placeholder((8, 4), name="x"), te.placeholder((4, 8), name="y")
    k = te.reduce_axis((0, 4), "k")
    z = te.compute((8, 8), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name="C")
    return make_workload(te.create_prim_func([x, y, z])).module


@pytest.fixture
def folder(module, tmp_path):
    database = ms.database.JSONDatabase(work_dir=str(tmp_path))
    known = database.commit_workload(module)
    arguments = ms.arg_info.ArgInfo.from_prim_func(module["main"])
    for target, seconds, loop in (
        (HOST, 1e-3, 2),
        ({**HOST, "mcpu": "cortex-a72"}, 1e-6, 1),
        ({**HOST, "num-cores": 4}, 1e-6, 0),
        (HOST, 1e10, 1),
    ):
        schedule = Schedule(module)
        schedule.unroll(schedule.get_loops(schedule.get_sblock("C"))[loop])
        record = ms.database.TuningRecord(
            schedule.trace, known, [seconds] * 2, tvm.target.Target(target), arguments
        )
        database.commit_tuning_record(record)
    return tmp_path


def trials(folder):
    return [json.loads(line) for line in (folder / TRIALS).read_text().splitlines()]


def damage(folder):
    """Add what TVM can not read, or dies of."""
    good = trials(folder)[0]
    lines = [
        "", "\0", "[0, [[", json.dumps([7, good[1]]), json.dumps([1, good[1]]),
        json.dumps([2, good[1]]), json.dumps([0, [WRONG, *good[1][1:]]]),
        json.dumps([0, [good[1][0], [float("nan")], *good[1][2:]]]),
    ]  # fmt: skip
    crash = json.dumps({"root_index": 0, "nodes": [{"type": "ir.IRModule", "data": {}}]}).encode()
    with (folder / TRIALS).open("a") as file:
        file.write("\n".join(lines))
    with (folder / WORKLOADS).open("a") as file:
        file.write(f"{json.dumps(['1', base64.b64encode(bytes(8) + crash).decode()])}\n[torn")


def test_records_for_exactly_the_target_become_seeds(folder, module, tmp_path):
    damage(folder)
    with RecordStore.open(tmp_path / "records.sqlite", pytest.fail) as store:
        brought = import_records(store, folder, json.dumps(HOST))
        assert (brought.what, brought.added, brought.known) == ("seed", 1, 0)
        reasons = {reason.split(":")[0]: count for reason, count in brought.left_out.items()}
        assert reasons == {
            "failed trials": 1, "damaged": 4, "damaged workload": 1,
            "a trace of workload 0 is refused": 1,
            "TVM cannot read the workload": 1, "for another target": 1,
        }  # fmt: skip
        assert "for another target: llvm cortex-a72 2" in brought.left_out
        assert "for another target: llvm znver4 4" in brought.left_out
        name, text = make_workload(module["main"]).identity, tvm.ir.save_json(module)
        assert store.best(name, text, HERE) is None
        (near,) = store.near(name, None, HERE)
        assert near.record.seconds == (1e-3, 1e-3)
        assert near.about
        assert near.about.outputs == ("float32[8,8]",)
        assert "T.unroll(4)" in apply_trace(module, near.record.schedule).mod.script()
        assert import_records(store, folder, json.dumps(HOST)).known == 1


def test_without_a_target_it_is_this_machine(folder):
    found = read_database(folder, None)
    assert all(json.loads(each.platform.target)["mcpu"] != "cortex-a72" for each in found.found)
    assert sum(found.left_out.values()) + len(found.found) == 4


@pytest.mark.fault("H5")
def test_a_trace_with_code_is_left_out_and_told(folder, module):
    good = trials(folder)[0]
    forged = json.loads(forge(module, "touch /tmp/marker"))
    with (folder / TRIALS).open("a") as file:
        file.write(json.dumps([0, [forged, *good[1][1:]]]) + "\n")
    found = read_database(folder, HOST)
    assert len(found.found) == 1
    why = 'instruction 3, Annotate: key may not be "pragma_import_llvm"'
    assert found.left_out[f"a trace of workload 0 is refused: {why}"] == 1
