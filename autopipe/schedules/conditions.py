"""The conditions of scheduling: target, hardware, and whether fast algorithms are allowed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import tvm

from autopipe.compiler.target.target import make_target
from autopipe.schedules.hardware import HardwareParams


@dataclass(frozen=True, slots=True)
class Conditions:
    """The target and the numeric rules that schedules are made for."""

    target: tvm.target.Target
    hardware: HardwareParams
    fast_algorithms: bool = True
    """Whether implementations that round differently, such as Winograd, may be used."""

    @classmethod
    def of(cls, target: Mapping[str, object], *, fast_algorithms: bool) -> "Conditions":
        """Return the conditions for the resolved facts of `Facet.TARGET`. Raises TargetError."""
        tvm_target = make_target(target)
        hardware_facts = target.get("hardware", {})
        return cls(tvm_target, HardwareParams.of(tvm_target, hardware_facts), fast_algorithms)  # type: ignore[arg-type]

    def within(self, weights: int) -> "Conditions":
        """Return the conditions inside a model that reads `weights` bytes of weights in a run."""
        return replace(self, hardware=replace(self.hardware, weights=weights))
