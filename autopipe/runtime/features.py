"""Features of processors that a kernel may use."""

from typing import Final

LINUX_FLAGS: Final = {
    "sse3": "pni", "ssse3": "ssse3", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "popcnt": "popcnt",
    "lzcnt": "abm", "bmi": "bmi1", "bmi2": "bmi2", "movbe": "movbe", "f16c": "f16c",
    "fma": "fma", "avx": "avx", "avx2": "avx2", "avxvnni": "avx_vnni", "gfni": "gfni",
    "avx512f": "avx512f", "avx512cd": "avx512cd", "avx512bw": "avx512bw",
    "avx512dq": "avx512dq", "avx512vl": "avx512vl", "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi", "avx512vbmi2": "avx512_vbmi2", "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16", "avx512fp16": "avx512_fp16", "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq", "amx-tile": "amx_tile", "amx-int8": "amx_int8",
    "amx-bf16": "amx_bf16",
    "neon": "asimd", "dotprod": "asimddp", "fullfp16": "asimdhp", "i8mm": "i8mm", "bf16": "bf16",
    "lse": "atomics", "sve": "sve", "sve2": "sve2",
}  # fmt: skip
"""Linux's names of processor features, by LLVM's names."""
