"""Whether a second thread pays hangs on how much is moved, and on where it lies."""

import pytest
from tvm import te
from tvm.s_tir import Schedule

from autopipe.compiler.target.target import make_target
from autopipe.schedules.analysis.movement import match_movement
from autopipe.schedules.hardware import HardwareParams

SIZES = {"l1": 48 << 10, "l2": 1 << 20, "l3": 32 << 20}


def hardware(mcpu):
    target = make_target({"kind": "llvm", "mcpu": mcpu, "num_cores": 2, "mattr": []})
    return HardwareParams.of(target, SIZES)


def sums(rows, columns):
    x, y = (te.placeholder((rows, columns), name=name) for name in "xy")
    total = te.compute((rows, columns), lambda i, j: x[i, j] + y[i, j], name="total")
    return match_movement(Schedule(te.create_prim_func([x, y, total])))


@pytest.mark.parametrize("mcpu", ["znver5", "znver4", "sapphirerapids", "haswell"])
@pytest.mark.parametrize(
    ("columns", "in_model", "alone"), [(256, False, False), (512, True, False), (1024, True, True)]
)
def test_a_zen_5_moves_what_lies_in_its_own_cache_faster(mcpu, columns, in_model, alone):
    moved, found = sums(128, columns), hardware(mcpu)
    assert moved.effort.bytes == 12
    assert moved.effort.pays(128 * columns, found) == in_model
    assert moved.effort.pays(128 * columns, found.alone()) == (
        alone if mcpu == "znver5" else in_model
    )
