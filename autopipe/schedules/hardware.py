"""What a static schedule needs to know of a processor: coarse numbers, from the target alone."""

from dataclasses import dataclass

import tvm
from tvm.target import codegen


@dataclass(frozen=True, slots=True)
class Hardware:
    """Hardware parameters of a CPU target."""

    vector_bits: int
    """Width of a vector register."""
    registers: int
    """Vector registers there are."""
    cores: int
    """Threads that kernels run on."""

    @classmethod
    def of(cls, target: tvm.target.Target) -> "Hardware":
        """Read them from the target's LLVM features."""
        has_avx512 = codegen.llvm_cpu_has_features("avx512f", target)
        is_arm = "aarch64" in str(target.attrs.get("mtriple", ""))
        registers = 32 if has_avx512 or is_arm else 16
        cores = int(target.attrs.get("num-cores", 1))
        return cls(vector_bits(target), registers, max(1, cores))

    def lanes(self, bits: int) -> int:
        """Return how many elements of `bits` bits a vector register holds."""
        return max(1, self.vector_bits // bits)


def vector_bits(target: tvm.target.Target) -> int:
    """Return the width of the target's vector registers, as its LLVM features say."""
    for feature, bits in (("avx512f", 512), ("avx", 256)):
        if codegen.llvm_cpu_has_features(feature, target):
            return bits
    return 128
