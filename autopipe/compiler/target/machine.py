"""Whether code for a target runs on this machine."""

from collections.abc import Mapping

from autopipe.compiler.target import cpu, gpu


def check(target: Mapping[str, object]) -> None:
    """Raise TargetError if it does not. `target` is the resolved facts of `Facet.TARGET`."""
    cpu.check(cpu.machine_of(target), str(target["mcpu"]), cpu.required(target))
    arch = gpu.required(target)
    if arch is not None:
        gpu.check(arch)
