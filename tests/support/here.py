"""This machine as a target: what LLVM calls it, without what a hypervisor hides of it."""

import tvm

from autopipe.compiler.stack import machine
from autopipe.compiler.target.target import tvm_target


def facts() -> dict[str, object]:
    """Return the facts of two cores of this machine, as *environment* resolves them."""
    found = machine()
    lacks = [f"-{feature}" for feature in found["lacks"].split()]
    return {
        "kind": "llvm", "mcpu": found["mcpu"], "mattr": lacks, "num_cores": 2,
        "mtriple": found["mtriple"],
    }  # fmt: skip


def target() -> tvm.target.Target:
    """Return two cores of this machine."""
    return tvm_target(facts())
