"""Section `target`: the target hardware."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from autopipe.backends import BACKENDS
from autopipe.config.frozen import Consistent, Contradiction, Frozen
from autopipe.config.names import TargetKind
from autopipe.config.processors import ARCHITECTURES, PROCESSORS
from autopipe.config.suggestion import suggest_name

Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+-]+$")]
Feature = Annotated[str, StringConstraints(pattern=r"^[+-][A-Za-z0-9_.-]+$")]
Arch = Annotated[
    str, StringConstraints(pattern=r"^(native|sm_[0-9]+[af]?|nvidia/[A-Za-z0-9,_.-]+)$")
]
Program = Annotated[
    str, StringConstraints(pattern=r"^(/[^\x00-\x1f]*)?[A-Za-z0-9_][A-Za-z0-9_.+-]*$")
]
Folder = Annotated[str, StringConstraints(pattern=r"^/[^\x00-\x1f]*$")]
Bytes = Annotated[int, Field(ge=1024, le=2**40)]

_NEEDED = ((256, "avx512f"), (128, "avx"))
"""The feature that x86 processors need beyond a vector width in bits."""


def _check_power_of_two(value: int) -> int:
    if value & (value - 1):
        raise ValueError(f"{value} is not a power of two")
    return value


class Hardware(Frozen, frozen=True):
    """Hardware parameters of unmeasured schedules; null is that of the processor."""

    vector_bits: (
        Annotated[int, Field(ge=64, le=2048), AfterValidator(_check_power_of_two)] | None
    ) = None
    """Width of the vectors in a schedule; at most the processor's own."""
    registers: Annotated[int, Field(ge=4, le=256)] | None = None
    """Vector registers of a schedule; at most the processor's own."""
    l1: Bytes | None = None
    """Bytes of a core's first-level data cache."""
    l2: Bytes | None = None
    """Bytes of a core's second-level cache."""
    l3: Bytes | None = None
    """Bytes of the shared cache."""


class Target(Consistent, frozen=True):
    """A TVM target. `native` is resolved to this machine before it enters a key."""

    kind: TargetKind = "llvm"
    """TVM's target kind: `llvm` is a processor, `cuda` an NVIDIA GPU."""
    arch: Arch | None = None
    """The GPU: `sm_90`, TVM's name of one (`nvidia/nvidia-h100`), or `native`, which null is for
    `cuda`: the first one here."""
    mcpu: Word = "native"
    """LLVM's name of the processor, or `native` for the one autopipe runs on."""
    mattr: tuple[Feature, ...] = ()
    """LLVM features to add (`+avx512bf16`) or to remove (`-avx512f`)."""
    mtriple: Word | None = None
    """LLVM triple to compile for; null is the host's. Another machine's needs a `linker`, and is
    never measured here."""
    linker: Program | None = None
    """The compiler that links for `mtriple`, such as `aarch64-linux-gnu-gcc`: a program on the PATH
    or an absolute path. Null is the C++ compiler of this machine, which links for this machine."""
    sysroot: Folder | None = None
    """Absolute path of the folder with the C library of the target, where the linker has none or a
    different one."""
    num_cores: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Threads the model runs on: in tuning, verification, benchmark and the package. Null is
    every core this process may use."""
    hardware: Hardware = Hardware()
    """Hardware parameters that replace the processor's own for schedules."""

    def _contradictions(self) -> Iterator[Contradiction]:
        """Yield each field that this kind does not have, or that contradicts others."""
        yield from self._list_cache_conflicts()
        is_listed = self.mtriple is None or self.mtriple.startswith(ARCHITECTURES)
        if is_listed and self.mcpu not in {"native", *PROCESSORS}:
            hint = suggest_name(self.mcpu, PROCESSORS)
            yield ("mcpu",), self.mcpu, f"is no processor that LLVM knows{hint}"
        other_backends = [one for kind, one in BACKENDS.items() if kind != self.kind]
        for name, why in (field for other in other_backends for field in other.fields.items()):
            value = getattr(self, name)
            if value != type(self).model_fields[name].default:
                yield (name,), value, why
        if self.sysroot is not None and self.linker is None:
            yield ("sysroot",), self.sysroot, "is for a `linker`, which is null"

    def _list_cache_conflicts(self) -> Iterator[Contradiction]:
        hardware = self.hardware
        for bits, feature in _NEEDED:
            if (hardware.vector_bits or 0) > bits and f"-{feature}" in self.mattr:
                why = f"contradicts `mattr`, which takes {feature} away: {bits} at most"
                yield ("hardware", "vector_bits"), hardware.vector_bits, why
                break
        for small, large in (("l1", "l2"), ("l2", "l3")):
            size, limit = getattr(hardware, small), getattr(hardware, large)
            if size and limit and size > limit:
                yield ("hardware", small), size, f"should not be more than `{large}`, {limit}"
