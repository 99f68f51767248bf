"""Coarse hardware parameters of a processor, read from the target alone.

Engine `static` fills the knobs of templates from them; searches bound their settings by them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import tvm
from tvm.target import codegen

from autopipe.backends.backend import Backend
from autopipe.backends.cpu import CPU
from autopipe.compiler.target.target import backend_of, find_host_target
from autopipe.environment.machines import MACHINES, Machine, find_machine
from autopipe.errors import TargetError

_CACHED_WEIGHTS: Final = 2.5
"""Size of weights, in second-level caches, up to which they are still cached in the next run."""


@dataclass(frozen=True, slots=True)
class HardwareParams:
    """Hardware parameters of a CPU target."""

    vector_bits: int
    """Size of a vector register, in bits."""
    registers: int
    """Number of vector registers."""
    cores: int
    """Threads that kernels run on."""
    features: frozenset[str] = frozenset()
    """Instruction sets of the processor, in LLVM's names."""
    l1: int = 32 << 10
    """Bytes of a core's first-level data cache."""
    l2: int = 512 << 10
    """Bytes of a core's second-level cache."""
    l3: int = 8 << 20
    """Bytes of the cache that the cores share."""
    backend: Backend = CPU
    """The kind of hardware; the parameters are the host's if it is not a processor."""
    weights: int | None = None
    """Bytes of weights that the model reads in a run; None if unknown."""
    machine: Machine = MACHINES["x86-64"]
    """The row of its processor in the table of machines."""
    in_model: bool = True
    """Whether functions run inside a model: half of their operands lie in another core's cache."""

    @classmethod
    def of(
        cls, target: tvm.target.Target, overrides: Mapping[str, int] = MappingProxyType({})
    ) -> "HardwareParams":
        """Return the parameters of a target, from its LLVM features; `overrides` replace them.

        Raises TargetError if an override is larger than the target has.
        """
        backend, target = backend_of(target), find_host_target(target)
        has_avx512 = codegen.llvm_cpu_has_features("avx512f", target)
        mcpu = str(target.attrs.get("mcpu", "generic"))
        triple = str(target.attrs.get("mtriple", "") or codegen.llvm_get_system_triple())
        architecture = triple.split("-", maxsplit=1)[0]
        registers = 32 if has_avx512 or architecture == "aarch64" else 16
        cores = int(target.attrs.get("num-cores", 1))
        features = frozenset(map(str, codegen.llvm_get_cpu_features(target)))
        machine = find_machine(mcpu, architecture, features)
        hardware = cls(
            vector_bits(target), registers, max(1, cores), features,
            l1=machine.l1_bytes, l2=machine.l2_bytes, l3=machine.l3_bytes,
            backend=backend, machine=machine,
        )  # fmt: skip
        for name in ("vector_bits", "registers"):
            limit = getattr(hardware, name)
            if overrides.get(name, 0) > limit:
                raise TargetError(
                    f"target.hardware.{name}: {overrides[name]} contradicts the target:"
                    f" {mcpu} has {limit}"
                )
        return replace(hardware, **dict[str, Any](overrides))

    @property
    def wants_prefetch(self) -> bool:
        """Whether kernels prefetch weights some steps ahead: vectors are as long as units."""
        return self.machine.wants_prefetch and self.vector_bits >= self.machine.vector_bits_of_units

    @property
    def keeps_weights(self) -> bool:
        """Whether all weights of a model stay in a core's caches from one run to the next."""
        return self.weights is not None and self.weights <= _CACHED_WEIGHTS * self.l2

    def alone(self) -> "HardwareParams":
        """Return the parameters for functions outside a model.

        There the operands lie in the core's own cache. Example: a Zen 5 copies 65536 floats in
        2.0 us there, and a second thread takes as long to start.
        """
        return replace(self, in_model=False)

    def lanes(self, bits: int) -> int:
        """Return the number of elements of `bits` bits in a vector register."""
        return max(1, self.vector_bits // bits)


def vector_bits(target: tvm.target.Target) -> int:
    """Return the size of the target's vector registers in bits, from its LLVM features."""
    for feature, bits in (("avx512f", 512), ("avx", 256)):
        if codegen.llvm_cpu_has_features(feature, target):
            return bits
    return 128
