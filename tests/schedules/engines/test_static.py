import json
from dataclasses import replace

import pytest
import tvm
import tvm_ffi
from tvm import te, topi
from tvm.s_tir import Schedule

from autopipe.environment.machines import MACHINES
from autopipe.measure.build import without_weights
from autopipe.schedules.engines import static
from autopipe.schedules.engines.fallback import UNSCHEDULED, choose_fallback
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.replay import replay_schedule
from autopipe.schedules.templates.contraction import CONTRACTION
from tests.schedules.computed import CHECKED, assert_same, positive
from tests.schedules.engines.test_default import argmax, pool
from tests.schedules.tasks import CONDITIONS, TARGET
from tests.schedules.tensors import module_of
from tests.support.table import each_row

PLAIN = replace(CONDITIONS, fast_algorithms=False)


def conv(channels=32, *, size=9, stride=1, groups=1, pad=1, residual=False):
    x = te.placeholder((1, size, size, 4 * groups), "float32")
    w = te.placeholder((3, 3, 4, channels), "float32")
    bias = te.placeholder((1, 1, 1, channels), "float32")
    y = topi.nn.conv(x, w, stride, pad, 1, groups, "NHWC", "HWIO")
    y = topi.add(y, bias)
    arguments = [x, w, bias]
    if residual:
        other = te.placeholder(y.shape, "float32")
        arguments.append(other)
        y = topi.add(y, other)
    return [*arguments, topi.nn.relu(y)], [1, 2]


def depthwise():
    x, w = te.placeholder((1, 8, 8, 24), "float32"), te.placeholder((3, 3, 24, 1), "float32")
    return [x, w, topi.nn.depthwise_conv2d_nhwc(x, w, 1, 1, 1)], [1]


def dense(rows=6, columns=40):
    x, w = te.placeholder((rows, 33), "float32"), te.placeholder((33, columns), "float32")
    return [x, w, topi.tanh(topi.matmul(x, w))], [1]


def batched():
    x, y = te.placeholder((3, 8, 16), "float32"), te.placeholder((3, 16, 32), "float32")
    return [x, y, topi.nn.batch_matmul(x, y, transpose_b=False)], []


SERVED = {
    "conv": conv,
    "strided": lambda: conv(stride=2),
    "unpadded": lambda: conv(pad=0),
    "odd_channels": lambda: conv(channels=7),
    "residual": lambda: conv(residual=True),
    "grouped": lambda: conv(channels=48, groups=4),
    "depthwise": depthwise,
    "dense": dense,
    "vector_times_matrix": lambda: dense(rows=1, columns=1000),
    "batched": batched,
}
OTHERS = {"pool": (pool, "reduction"), "argmax": (argmax, "reduction")}


def planned(module):
    scheduled = static.plan(module, PLAIN)
    assert scheduled is not None
    return scheduled


def found(case):
    return CONTRACTION.match(Schedule(module_of(*SERVED[case]())))


@each_row("case", SERVED)
def test_a_scheduled_function_computes_the_same(case):
    module = module_of(*SERVED[case]())
    inputs = (positive, *CHECKED)
    assert_same(module, planned(module).module, inputs=inputs, of_largest=1e-6)


@pytest.mark.parametrize("case", OTHERS)
def test_other_reductions_do_not_count_as_sums_of_products(case):
    make, template = OTHERS[case]
    module = module_of(make())
    match = CONTRACTION.match(Schedule(module))
    assert match is None or not match.sums_products
    found = static.plan(module, CONDITIONS)
    assert found is not None
    assert json.loads(found.schedule)["template"] == template


def test_a_function_without_blocks_falls_through():
    module = tvm.IRModule({"main": tvm.tirx.PrimFunc([], tvm.tirx.Evaluate(0))})
    assert choose_fallback(["static", "default"], module, CONDITIONS).engine == UNSCHEDULED


def test_weights_are_packed_and_activations_are_not():
    assert found("conv").lines.free
    assert not found("batched").lines.free
    scheduled = planned(module_of(*conv()))
    kernel = without_weights(scheduled.module)
    shapes = [[int(d) for d in p.shape] for p in kernel["main"].params]
    tile = CONTRACTION.fill(found("conv"), HardwareParams.of(TARGET))
    assert shapes[1] == [32 // tile.columns, 3, 3, 4, tile.columns]


def test_bias_and_activation_are_done_on_the_tile():
    scheduled = planned(module_of(*conv(residual=True)))
    sch = Schedule(scheduled.module)
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    assert len(blocks) == 3  # padding, weight copy, the tiles


def test_the_record_gives_the_schedule_again():
    module = module_of(*conv())
    scheduled = planned(module)
    again = replay_schedule(module, scheduled.implementation, scheduled.schedule, CONDITIONS)
    assert tvm_ffi.structural_equal(again, scheduled.module)


def test_hardware_comes_from_the_target():
    haswell = HardwareParams.of(
        tvm.target.Target({"kind": "llvm", "mcpu": "haswell", "num-cores": 3})
    )
    assert "avx2" in haswell.features
    row = MACHINES["intel-haswell"]
    assert replace(haswell, features=frozenset()) == HardwareParams(
        256, 16, 3, l1=row.l1_bytes, l2=row.l2_bytes, l3=row.l3_bytes, machine=row
    )
    server = HardwareParams.of(
        tvm.target.Target({"kind": "llvm", "mcpu": "znver4", "num-cores": 2})
    )
    assert (server.vector_bits, server.registers, server.cores) == (512, 32, 2)
    assert (server.machine, server.l2) == (MACHINES["zen-4"], 1 << 20)
