"""Tasks as the tests of tuning need them."""

import tvm

from autopipe.schedules.conditions import Conditions
from autopipe.schedules.hardware import Hardware
from autopipe.task import Task

TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 2})
CONDITIONS = Conditions(TARGET, Hardware.of(TARGET))


def task(index=0, *, flops=1e9, calls=1, ops=("nn.conv2d",)):
    return Task(
        index=index, name=f"task{index}", workload=f"{index:016x}", functions=(f"task{index}",),
        calls=calls, ops=ops, kind="opaque", reductions=1, inputs=(), outputs=(), flops=flops,
        bytes=0, dropped=None,
    )  # fmt: skip
