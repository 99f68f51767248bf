"""Unrolls inner loops, so that what they compute stays in registers."""

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import SBlockRV


def write_out(sch: Schedule, block: SBlockRV, count: int) -> None:
    """Unroll the `count` innermost loops of a block, and vectorize the last of them."""
    *loops, vector = sch.get_loops(block)[-count:]
    sch.vectorize(vector)
    for loop in loops:
        sch.unroll(loop)
