"""What a static schedule needs to know of a processor: coarse numbers, from the target alone."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import tvm
from tvm.target import codegen

from autopipe.compiler.target.target import is_gpu
from autopipe.errors import TargetError


@dataclass(frozen=True, slots=True)
class Hardware:
    """Hardware parameters of a CPU target."""

    vector_bits: int
    """Width of a vector register."""
    registers: int
    """Vector registers there are."""
    cores: int
    """Threads that kernels run on."""
    features: frozenset[str] = frozenset()
    """Sets of instructions it has, in LLVM's names."""
    l1: int = 32 << 10
    """Bytes of a core's first-level data cache."""
    l2: int = 512 << 10
    """Bytes of a core's second-level cache."""
    l3: int = 8 << 20
    """Bytes of the cache that the cores share."""
    gpu: bool = False
    """Whether all this is of the host of a GPU: templates for processors then serve nothing."""

    @classmethod
    def of(
        cls, target: tvm.target.Target, stated: Mapping[str, int] = MappingProxyType({})
    ) -> "Hardware":
        """Read them from the target's LLVM features, but for what is stated.

        Raises TargetError for what the target does not have.
        """
        gpu = is_gpu(target)
        target = target.host if gpu else target
        has_avx512 = codegen.llvm_cpu_has_features("avx512f", target)
        is_arm = "aarch64" in str(target.attrs.get("mtriple", ""))
        registers = 32 if has_avx512 or is_arm else 16
        cores = int(target.attrs.get("num-cores", 1))
        features = frozenset(map(str, codegen.llvm_get_cpu_features(target)))
        found = cls(vector_bits(target), registers, max(1, cores), features, gpu=gpu)
        for name in ("vector_bits", "registers"):
            has = getattr(found, name)
            if stated.get(name, 0) > has:
                raise TargetError(
                    f"target.hardware.{name}: {stated[name]} contradicts the target:"
                    f" {target.attrs.get('mcpu', 'generic')} has {has}"
                )
        return replace(found, **dict[str, Any](stated))

    def lanes(self, bits: int) -> int:
        """Return how many elements of `bits` bits a vector register holds."""
        return max(1, self.vector_bits // bits)


def vector_bits(target: tvm.target.Target) -> int:
    """Return the width of the target's vector registers, as its LLVM features say."""
    for feature, bits in (("avx512f", 512), ("avx", 256)):
        if codegen.llvm_cpu_has_features(feature, target):
            return bits
    return 128
