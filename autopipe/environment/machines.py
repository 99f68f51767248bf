"""The table of processors for cost estimates: one row a family.

`schedules/cost.py` estimates times from these rows; `autopipe doctor --machine` measures the values
of this machine. A processor is found by LLVM's name (`target.mcpu`). A processor without a row gets
the row of its architecture, by the rule of `derive_machine`.

Sources, by their letters in the table:

- A: "Software Optimization Guide" of AMD for families 17h, 19h and 1Ah
- I: "Intel 64 and IA-32 Architectures Optimization Reference Manual", tables of cache parameters
- N: Arm's "Software Optimization Guide" and "Technical Reference Manual" of each Neoverse core
- U: uops.info, latencies and ports of VFMADD231PS
- M: measured by `autopipe doctor --machine`, or as the comment states
- P: planning value, which schedules used before there was a table

Clocks are those of cloud servers under vector load. Bandwidth is the maximum that one core reads.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

KIB: Final = 1024
MIB: Final = 1024 * KIB

LINE_BYTES: Final = 64
"""Bytes of a cache line, equal in all rows, because loops depend on it."""


class Machine(NamedTuple):
    """Parameters of a family of processors."""

    family: str
    l1_bytes: int
    """Bytes of a core's first-level data cache."""
    l2_bytes: int
    """Bytes of a core's second-level cache."""
    l3_bytes: int
    """Bytes of the cache that cores share."""
    frequency_ghz: float
    """Clock under vector load."""
    vector_bits_of_units: int
    """Width of a vector unit in bits: on a Zen 4 half of that of its registers."""
    l1_bytes_per_cycle: float
    """Bytes that a core loads in a cycle from its first-level cache."""
    l2_bytes_per_cycle: float
    """The same from its second-level cache."""
    l3_bytes_per_cycle: float
    """The same from the shared cache. M on a Zen 4, P elsewhere."""
    memory_bytes_per_ns: float
    """Bytes that a core reads from memory in a nanosecond."""
    shared_line_ns: float
    """Time to read a cache line that another core has written."""
    processors: tuple[str, ...] = ()
    """LLVM's names, without its aliases; a `*` at the end stands for any end."""
    line_bytes: int = LINE_BYTES
    """Bytes of a cache line."""
    fma_latency_cycles: float = 4.0
    """Latency of a multiply-add in cycles."""
    fma_ports: int = 2
    """Vector multiply-adds per cycle, of `vector_bits_of_units` each."""
    copy_bytes_per_ns: float = 1 / 0.0112
    """Rate of vector copies in the second-level cache of a core, in bytes a nanosecond.
    P, by timing copies and sums of tensors on a Zen 4."""
    thread_start_ns: float = 2_000.0
    """Time to start a second thread of a pool and wait for it. P."""
    barrier_ns: float = 1_200.0
    """Time of the barrier of a parallel loop. M on a Sapphire Rapids: 3500 cycles; P elsewhere."""
    has_mesh: bool = False
    """Whether cores are connected by a mesh, with a high latency between cores."""
    memory_operands: bool = True
    """Whether a multiply-add can have a memory operand, as on x86-64; else operands need registers
    and load instructions."""
    wants_prefetch: bool = False
    """Whether kernels prefetch packed weights some steps ahead: where a step takes fewer cycles
    than the latency of the second level and beyond."""


_GENERIC_X86: Final = Machine(
    family="x86-64",
    # Caches P. Clock and bandwidth: the minimum of the rows of x86-64 below.
    l1_bytes=32 * KIB, l2_bytes=512 * KIB, l3_bytes=8 * MIB, frequency_ghz=3.0,
    vector_bits_of_units=128, l1_bytes_per_cycle=32.0, l2_bytes_per_cycle=32.0,
    l3_bytes_per_cycle=28.0, memory_bytes_per_ns=15.0, shared_line_ns=60.0,
)  # fmt: skip

_ZEN_1: Final = Machine(
    family="zen-1", processors=("znver1",),
    # A: 32 KiB, 512 KiB, 8 MiB for four cores (16 MiB is P); units of 128 bits; 2 x 16 bytes from
    # the first level, 32 from the second and third. U: latency 5; P: 4, as others were not timed.
    l1_bytes=32 * KIB, l2_bytes=512 * KIB, l3_bytes=16 * MIB, frequency_ghz=2.9,
    vector_bits_of_units=128, l1_bytes_per_cycle=32.0,
    l2_bytes_per_cycle=32.0, l3_bytes_per_cycle=28.0, memory_bytes_per_ns=14.5, shared_line_ns=40.0,
)  # fmt: skip

# A: units of 256 bits, 2 x 32 bytes from the first level. U: latency 5; P: 4.
_ZEN_2: Final = _ZEN_1._replace(
    family="zen-2", processors=("znver2",), frequency_ghz=3.3, vector_bits_of_units=256,
    l1_bytes_per_cycle=64.0, memory_bytes_per_ns=16.5, shared_line_ns=30.0,
)  # fmt: skip

# U: latency 4. A: eight cores share the third level, 32 MiB (16 MiB is P).
_ZEN_3: Final = _ZEN_2._replace(
    family="zen-3", processors=("znver3",), frequency_ghz=3.5,
    memory_bytes_per_ns=17.5, shared_line_ns=25.0,
)  # fmt: skip

# A: 1 MiB, 32 MiB for eight cores; registers of 512 bits, units of 256. U: latency 4.
# M, on an EPYC 9004: 3.69 GHz; 60, 31 and 26 bytes a cycle from the three levels; 12 to 16 bytes a
# nanosecond from memory, where 18.5 is P. No prefetch M: it gained nothing.
_ZEN_4: Final = _ZEN_3._replace(
    family="zen-4", processors=("znver4",), l2_bytes=MIB, l3_bytes=32 * MIB,
    frequency_ghz=3.7, memory_bytes_per_ns=18.5,
)  # fmt: skip

# A: 48 KiB; units of 512 bits, 2 x 64 bytes from the first level, 64 from the second. U: latency 4.
# Copies M: 0.0042 ns a byte. Prefetch P, as for all units of 512 bits.
_ZEN_5: Final = _ZEN_4._replace(
    family="zen-5", processors=("znver5",), l1_bytes=48 * KIB, frequency_ghz=3.9,
    vector_bits_of_units=512, l1_bytes_per_cycle=128.0, l2_bytes_per_cycle=64.0,
    memory_bytes_per_ns=19.5, copy_bytes_per_ns=1 / 0.0042, wants_prefetch=True,
)  # fmt: skip

_HASWELL: Final = Machine(
    family="intel-haswell", processors=("haswell", "broadwell"),
    # I: 32 KiB, 256 KiB, 8 MiB and more; 2 x 32 bytes from the first level, 64 from the second at
    # most and some 25 for long, 27 from the third at most. U: latency 5; P: 4.
    l1_bytes=32 * KIB, l2_bytes=256 * KIB, l3_bytes=8 * MIB, frequency_ghz=3.0,
    vector_bits_of_units=256, l1_bytes_per_cycle=64.0,
    l2_bytes_per_cycle=32.0, l3_bytes_per_cycle=28.0, memory_bytes_per_ns=15.0, shared_line_ns=60.0,
)  # fmt: skip

# U: latency 4. I: caches of Skylake.
_INTEL_CLIENT: Final = _HASWELL._replace(
    family="intel-client", processors=("skylake",), frequency_ghz=3.5,
    memory_bytes_per_ns=17.5,
)  # fmt: skip

# Alder Lake and later lack AVX-512; their caches are P, not the 48 KiB and 1.25 to 2 MiB of I.
_INTEL_HYBRID: Final = _INTEL_CLIENT._replace(
    family="intel-hybrid",
    processors=("alderlake", "raptorlake", "meteorlake", "arrowlake*", "lunarlake", "pantherlake"),
    l2_bytes=512 * KIB, frequency_ghz=4.0, memory_bytes_per_ns=20.0,
)  # fmt: skip

# Client cores with AVX-512. I: a multiply-add of 512 bits takes both units of 256.
# Caches P, not the 48 KiB and 512 KiB to 1.25 MiB of I. Mesh and prefetch P: these processors have
# a ring, but hypervisors let servers pass for a Rocket Lake, and a checked-in lock rests on it.
_INTEL_CLIENT_512: Final = _INTEL_CLIENT._replace(
    family="intel-client-avx512",
    processors=("cannonlake", "icelake-client", "tigerlake", "rocketlake"),
    l2_bytes=512 * KIB, l1_bytes_per_cycle=128.0,
    has_mesh=True, wants_prefetch=True,
)  # fmt: skip

_SKYLAKE_SERVER: Final = Machine(
    family="intel-skylake-server", processors=("skylake-avx512", "cascadelake", "cooperlake"),
    # I: 32 KiB, 1 MiB; two units of 512 bits, 2 x 64 bytes from the first level, 64 from the second
    # at most, 16 from the third. Third level P. U: latency 4.
    l1_bytes=32 * KIB, l2_bytes=MIB, l3_bytes=16 * MIB, frequency_ghz=2.8,
    vector_bits_of_units=512, l1_bytes_per_cycle=128.0, l2_bytes_per_cycle=64.0,
    l3_bytes_per_cycle=28.0, memory_bytes_per_ns=14.0, shared_line_ns=170.0, has_mesh=True,
    wants_prefetch=True,
)  # fmt: skip

# I: 48 KiB, 1.25 MiB. Third level P.
_ICE_LAKE_SERVER: Final = _SKYLAKE_SERVER._replace(
    family="intel-ice-lake-server", processors=("icelake-server",),
    l1_bytes=48 * KIB, l2_bytes=1280 * KIB, l3_bytes=24 * MIB, frequency_ghz=3.0,
    memory_bytes_per_ns=15.0,
)  # fmt: skip

# I: 48 KiB, 2 MiB. Third level P. A line of another core takes some 170 ns: P.
_SAPPHIRE_RAPIDS: Final = _ICE_LAKE_SERVER._replace(
    family="intel-sapphire-rapids",
    processors=("sapphirerapids", "emeraldrapids", "graniterapids*", "diamondrapids"),
    l2_bytes=2 * MIB, l3_bytes=32 * MIB,
)  # fmt: skip

# I: 32 KiB, half of 1 MiB for a tile of two cores, no third level (8 MiB is P), two units of 512
# bits whose latency is 6. It was counted as a server with a mesh, which it has.
_XEON_PHI: Final = _SKYLAKE_SERVER._replace(
    family="intel-xeon-phi", processors=("knl", "knm"), l2_bytes=512 * KIB,
    l3_bytes=8 * MIB, frequency_ghz=1.4, fma_latency_cycles=6.0, memory_bytes_per_ns=7.0,
)  # fmt: skip

_GENERIC_ARM: Final = Machine(
    family="aarch64",
    # Caches P. The rest is the minimum of the rows of AArch64 below.
    l1_bytes=32 * KIB, l2_bytes=512 * KIB, l3_bytes=8 * MIB, frequency_ghz=2.5,
    vector_bits_of_units=128, l1_bytes_per_cycle=32.0, l2_bytes_per_cycle=32.0,
    l3_bytes_per_cycle=28.0, memory_bytes_per_ns=12.5, shared_line_ns=60.0, memory_operands=False,
)  # fmt: skip

# P: caches of Cortex-A72 to A78.
_CORTEX_A7X: Final = _GENERIC_ARM._replace(
    family="cortex-a7x", processors=("cortex-a7*",), l1_bytes=64 * KIB,
    l3_bytes=2 * MIB, frequency_ghz=2.0, memory_bytes_per_ns=10.0,
)  # fmt: skip

# N: 64 KiB, 1 MiB; two units of 128 bits, 2 x 16 bytes from the first level; FMLA 4, 2 where sums
# are passed on from one to the next. Third level P: that of Graviton 2 and Altra.
_NEOVERSE_N1: Final = _GENERIC_ARM._replace(
    family="neoverse-n1", processors=("neoverse-n1",),
    l1_bytes=64 * KIB, l2_bytes=MIB, l3_bytes=32 * MIB,
)  # fmt: skip

# N: as N1, with SVE2 of 128 bits and 3 x 16 bytes from the first level.
_NEOVERSE_N2: Final = _NEOVERSE_N1._replace(
    family="neoverse-n2", processors=("neoverse-n2", "neoverse-n3"),
    frequency_ghz=3.0, l1_bytes_per_cycle=48.0, memory_bytes_per_ns=15.0,
)  # fmt: skip

# N: four units of 128 bits (SVE: two of 256); 3 x 16 bytes from the first level. Graviton 3.
_NEOVERSE_V1: Final = _NEOVERSE_N2._replace(
    family="neoverse-v1", processors=("neoverse-v1", "neoverse-512tvb"),
    frequency_ghz=2.6, fma_ports=4, memory_bytes_per_ns=13.0,
)  # fmt: skip

# N: as V1, with SVE2 of 128 bits. Second level 1 or 2 MiB; Graviton 4 and Grace.
_NEOVERSE_V2: Final = _NEOVERSE_V1._replace(
    family="neoverse-v2", processors=("neoverse-v2", "neoverse-v3*", "grace"),
    frequency_ghz=2.8, memory_bytes_per_ns=14.0,
)  # fmt: skip

_ROWS: Final = (
    _GENERIC_X86, _ZEN_1, _ZEN_2, _ZEN_3, _ZEN_4, _ZEN_5, _HASWELL, _INTEL_CLIENT, _INTEL_HYBRID,
    _INTEL_CLIENT_512, _SKYLAKE_SERVER, _ICE_LAKE_SERVER, _SAPPHIRE_RAPIDS, _XEON_PHI, _GENERIC_ARM,
    _CORTEX_A7X, _NEOVERSE_N1, _NEOVERSE_N2, _NEOVERSE_V1, _NEOVERSE_V2,
)  # fmt: skip

MACHINES: Final[Mapping[str, Machine]] = MappingProxyType({row.family: row for row in _ROWS})
"""The table, by family."""

_ALIASES: Final = MappingProxyType({"skx": "skylake-avx512", "mic_avx512": "knl"})
"""LLVM's other names, besides those with `_` for `-` and the prefix `core_`."""

_X86: Final = frozenset({"x86_64", "i686", "i386", "amd64"})


def find_machine(mcpu: str, architecture: str, features: Collection[str] = ()) -> Machine:
    """Return the row of a processor, or one derived from its architecture and features.

    `mcpu` is LLVM's name, `architecture` the first part of the triple, such as `x86_64`, and
    `features` are LLVM's names of instruction sets.
    """
    name = _ALIASES.get(mcpu, mcpu.replace("_", "-"))
    rows = (row for row in _ROWS if any(_is_name_match(name, wanted) for wanted in row.processors))
    return next(rows, None) or derive_machine(architecture, features)


def derive_machine(architecture: str, features: Collection[str] = ()) -> Machine:
    """Derive a row for a processor that is in no other one.

    It has the numbers of the generic row of its architecture: x86-64, and AArch64 for all others.
    Units are as wide as its registers: 512 bits with `avx512f`, 256 with `avx`, else 128; its first
    level gives two registers a cycle. Units of 512 bits want prefetches. No mesh is assumed.
    """
    if architecture not in _X86:
        return _GENERIC_ARM
    bits = 512 if "avx512f" in features else 256 if "avx" in features else 128
    return _GENERIC_X86._replace(
        vector_bits_of_units=bits,
        l1_bytes_per_cycle=2.0 * bits / 8,
        wants_prefetch=bits == 512,  # noqa: PLR2004 - the case of the line above
    )


def _is_name_match(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
