"""This machine as a target: what LLVM calls it, without what a hypervisor hides of it."""

import tvm

from autopipe.compiler.target.target import tvm_target
from autopipe.compiler.tvm_probe import machine
from autopipe.config.target import Target
from autopipe.environment.environment import resolve


def facts() -> dict[str, object]:
    """Return the facts of two cores of this machine, as *environment* resolves them."""
    found = resolve(Target(num_cores=2), machine())
    del found["hardware"]  # tests choose what depends on caches themselves
    return found


def target() -> tvm.target.Target:
    """Return two cores of this machine."""
    return tvm_target(facts())
