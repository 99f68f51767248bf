"""Kernels for an AArch64 processor, counted under an emulator: `python benchmarks/emulated.py`.

Each kernel is scheduled as for a Neoverse N1, with all 32 registers of 128 bits and with fewer or
shorter ones, and as plain loops. Printed are the instructions of a call by multiply-add of four
float32, and of these the loads, the stores, and the vectors that lie on the stack. An emulator
counts what a processor would do, and says nothing about time.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import tvm
from tvm import te, topi

from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines import default, static
from tests.support.emulation import COMPILER, EMULATOR, Emulator, InstructionCounts, has_emulator

VECTOR: Final = 4
"""Elements of a register."""

SETTINGS: Final[Mapping[str, Mapping[str, int] | None]] = {
    "static": {},
    "16 registers": {"registers": 16},
    "registers of 64 bits": {"vector_bits": 64},
    "plain loops": None,
}
"""What `target.hardware` states; None schedules nothing but parallel loops."""


def conv(channels: int, outputs: int, side: int, kernel: int) -> tvm.IRModule:
    """Return a convolution with bias and relu, channels last."""
    x = te.placeholder((1, side, side, channels), "float32", "x")
    w = te.placeholder((kernel, kernel, channels, outputs), "float32", "w")
    bias = te.placeholder((1, 1, 1, outputs), "float32", "bias")
    sums = topi.nn.conv(x, w, 1, kernel // 2, 1, 1, "NHWC", "HWIO")
    return _module([x, w, bias, topi.nn.relu(topi.add(sums, bias))], [1, 2])


def dense(rows: int, inputs: int, outputs: int) -> tvm.IRModule:
    """Return a matrix product with bias."""
    x = te.placeholder((rows, inputs), "float32", "x")
    w = te.placeholder((inputs, outputs), "float32", "w")
    bias = te.placeholder((1, outputs), "float32", "bias")
    return _module([x, w, bias, topi.add(topi.matmul(x, w), bias)], [1, 2])


def depthwise(channels: int, side: int) -> tvm.IRModule:
    """Return a depthwise convolution, channels last."""
    x = te.placeholder((1, side, side, channels), "float32", "x")
    w = te.placeholder((3, 3, channels, 1), "float32", "w")
    return _module([x, w, topi.nn.depthwise_conv2d_nhwc(x, w, 1, 1, 1)], [1])


KERNELS: Final[Mapping[str, tuple[Callable[[], tvm.IRModule], int]]] = {
    "conv 3x3, 28x28x64 to 64": (partial(conv, 64, 64, 28, 3), 28 * 28 * 64 * 64 * 9),
    "conv 1x1, 28x28x128 to 64": (partial(conv, 128, 64, 28, 1), 28 * 28 * 128 * 64),
    "dense 32x256 to 512": (partial(dense, 32, 256, 512), 32 * 256 * 512),
    "dense 1x512 to 1000": (partial(dense, 1, 512, 1000), 512 * 1000),
    "depthwise 3x3, 28x28x96": (partial(depthwise, 96, 28), 28 * 28 * 96 * 9),
}
"""By name, and the multiply-adds of a call."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mcpu", default="neoverse-n1", help="LLVM's name [%(default)s]")
    options = parser.parse_args()
    if not has_emulator():
        parser.exit(5, f"this takes {COMPILER} and {EMULATOR}\n")
    print(f"| {options.mcpu} | schedule | instructions | loads | stores | vectors on the stack |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        emulator = Emulator(Path(folder))
        for name, (make, multiply_adds) in KERNELS.items():
            for setting, stated in SETTINGS.items():
                counts = count(emulator, make(), options.mcpu, stated)
                print(f"| {name} | {setting} | {' | '.join(_cells(counts, multiply_adds))} |")


def count(
    emulator: Emulator, module: tvm.IRModule, mcpu: str, stated: Mapping[str, int] | None
) -> InstructionCounts:
    """Return the instructions of a call of a kernel; `stated` is an entry of SETTINGS."""
    facts = {
        "kind": "llvm", "mcpu": mcpu, "mtriple": "aarch64-linux-gnu", "num_cores": 2,
        "hardware": stated or {},
    }  # fmt: skip
    conditions = Conditions.of(facts, fast_algorithms=False)
    plans = (
        [default.plan_loops(module, conditions)]
        if stated is None
        else static.list_plans(module, conditions)
    )
    planned = next(plan for plan in plans if plan is not None)
    return emulator.count_call(planned.module, conditions.target)


def _cells(counts: InstructionCounts, multiply_adds: int) -> Iterator[str]:
    """Yield numbers by multiply-add of a vector."""
    for number in (counts.total, counts.loads, counts.stores, counts.spills):
        yield f"{number * VECTOR / multiply_adds:.2f}"


def _module(tensors: list[te.Tensor], weights: list[int]) -> tvm.IRModule:
    function = te.create_prim_func(tensors).with_attr("layout_free_buffers", weights)
    return tvm.IRModule({"main": function})


if __name__ == "__main__":
    main()
