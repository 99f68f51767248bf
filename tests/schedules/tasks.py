"""Tasks as the tests of tuning need them."""

import tvm

from autopipe.safety.verdict import Finding, Verdict
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.hardware import HardwareParams
from autopipe.tasks.op_info import Op, OpInfo
from autopipe.tasks.task import Task

TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 2})
CONDITIONS = Conditions(TARGET, HardwareParams.of(TARGET))


def task(index=0, *, flops=1e9, calls=1, ops=("nn.conv2d",), share=0.0):
    info = OpInfo(kind="opaque", ops=tuple(Op(name=name) for name in ops))
    return Task(
        index=index, name=f"task{index}", workload=f"{index:016x}", functions=(f"task{index}",),
        calls=calls, info=info, reductions=1,
        inputs=(), outputs=(), flops=flops, bytes=0, share=share, dropped=None,
    )  # fmt: skip


class Trusting:
    """An inspector that believes everything, or nothing of the engines it is given."""

    def __init__(self, *wrong):
        self.wrong = wrong
        self.asked = []

    def needs_check(self, _):
        return False

    def judge(self, suspects):
        self.asked.append([suspect.engine for suspect in suspects])
        return [
            Verdict(Finding.WRONG, "off by 1", "/wrong")
            if suspect.engine in self.wrong
            else Verdict(Finding.RIGHT)
            for suspect in suspects
        ]
