"""This machine as a target: what LLVM calls it, without what a hypervisor hides of it."""

import tvm

from autopipe.compiler.target.target import make_target
from autopipe.compiler.tvm_probe import describe_machine
from autopipe.config.target import Target
from autopipe.environment.environment import resolve_target


def facts() -> dict[str, object]:
    """Return the facts of two cores of this machine, as *environment* resolves them."""
    found = resolve_target(Target(num_cores=2), describe_machine())
    del found["hardware"]  # tests choose what depends on caches themselves
    return found


def target() -> tvm.target.Target:
    """Return two cores of this machine."""
    return make_target(facts())
