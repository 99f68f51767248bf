"""What the tests take an instruction for, in numbers that tell it from its likes."""

import ctypes

import ml_dtypes
import numpy as np
import pytest

from autopipe.compiler.target.cpu import list_host_features
from tests.schedules import emulated

LANES = 16
PAIRS = """
define void @run(ptr %sums, ptr %row, ptr %weights) #0 {
  %s = load <16 x float>, ptr %sums, align 4
  %a = load <32 x bfloat>, ptr %row, align 2
  %b = load <32 x bfloat>, ptr %weights, align 2
  %n = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(
    <16 x float> %s, <32 x bfloat> %a, <32 x bfloat> %b)
  store <16 x float> %n, ptr %sums, align 4
  ret void
}
declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float>, <32 x bfloat>, <32 x bfloat>)
attributes #0 = { "target-cpu"="cooperlake" }
"""
HALF, LEAST, LARGEST = 2.0**-24, 2.0**-126, 2.0**127

CASES = {  # sum, even pair, odd pair, new sum
    "both products": (10.0, (2.0, 3.0), (4.0, 5.0), 36.0),
    "the odd one first": (1.0, (2.0**-15, 2.0**-15), (1.0, -1.0), 2.0**-30),
    "rounded to even, twice": (1.0, (HALF, 1.0), (HALF, 1.0), 1.0),
    "rounded up where nearer": (1.0, (0.0, 1.0), (1.5 * HALF, 1.0), 1.0 + 2 * HALF),
    "fused": (-LARGEST, (0.0, 0.0), (LARGEST, 2.0), LARGEST),
    "a denormal operand": (1.0, (LEAST / 2, LARGEST), (LARGEST, LEAST / 2), 1.0),
    "a denormal sum": (LEAST / 2, (0.0, 0.0), (0.0, 0.0), 0.0),
    "a denormal between": (0.0, (0.75 * LEAST, 1.0), (LEAST, 0.5), 0.0),
    "a denormal result": (0.0, (-LEAST, 0.5), (0.0, 0.0), -0.0),
    "infinite": (1.0, (np.inf, 2.0), (1.0, 1.0), np.inf),
    "no number": (1.0, (np.inf, 0.0), (1.0, 1.0), np.nan),
}


@pytest.mark.parametrize(
    "processor",
    [
        pytest.param(None, id="emulated"),
        pytest.param(
            "cooperlake",
            marks=pytest.mark.skipif(
                "avx512bf16" not in list_host_features(), reason="not this CPU"
            ),
        ),
    ],
)
def test_pairs_of_bfloat16_are_multiplied_as_the_manual_says(tmp_path, processor):
    text = PAIRS if processor else emulated.rewritten(PAIRS)
    emulated.link(text, tmp_path / "pairs.so", processor)
    sums, expected = np.zeros(LANES, "f"), np.zeros(LANES, "f")
    row, weights = np.zeros((2, LANES, 2), ml_dtypes.bfloat16)
    for lane, (before, even, odd, after) in enumerate(CASES.values()):
        sums[lane], expected[lane] = before, after
        (row[lane, 0], weights[lane, 0]), (row[lane, 1], weights[lane, 1]) = even, odd
    run = ctypes.CDLL(str(tmp_path / "pairs.so")).run
    run(*(ctypes.c_void_p(array.ctypes.data) for array in (sums, row, weights)))
    np.testing.assert_array_equal(sums, expected)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(sums[known]), np.signbit(expected[known]))


def test_an_instruction_that_nobody_described_is_an_error():
    with pytest.raises(KeyError, match=r"what llvm\.x86\.avx512\.vpermi2var\.d\.512 means"):
        emulated.rewritten("call <16 x i32> @llvm.x86.avx512.vpermi2var.d.512()")


TILES = """
define void @run(ptr %sums, ptr %row, ptr %weights, ptr %configuration) #0 {{
  call void @llvm.x86.ldtilecfg(ptr %configuration)
  call void @llvm.x86.tileloadd64(i8 0, ptr %sums, i64 20)
  call void @llvm.x86.tileloadd64(i8 1, ptr %row, i64 10)
  call void @llvm.x86.tileloadd64(i8 2, ptr %weights, i64 12)
  call void @llvm.x86.{name}(i8 0, i8 1, i8 2)
  call void @llvm.x86.tilestored64(i8 0, ptr %sums, i64 20)
  call void @llvm.x86.tilezero(i8 0)
  call void @llvm.x86.tilerelease()
  ret void
}}
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilezero(i8)
declare void @llvm.x86.tilerelease()
declare void @llvm.x86.tileloadd64(i8, ptr, i64)
declare void @llvm.x86.tilestored64(i8, ptr, i64)
declare void @llvm.x86.{name}(i8, i8, i8)
attributes #0 = {{ "target-cpu"="sapphirerapids" }}
"""


HERE = [
    pytest.param(None, id="emulated"),
    pytest.param(
        "sapphirerapids",
        marks=pytest.mark.skipif("amx-int8" not in list_host_features(), reason="not this CPU"),
    ),
]


@pytest.mark.parametrize("signs", ["su", "us", "ss", "uu"])
@pytest.mark.parametrize("processor", HERE)
def test_tiles_are_multiplied_as_the_manual_says(tmp_path, processor, signs):
    """Sums of 4 x 3 in rows of 5, by rows of 8 bytes in rows of 10."""
    dtypes = [np.int8 if sign == "s" else np.uint8 for sign in signs]
    drawn = np.random.default_rng(0)
    sums = drawn.integers(-(2**31), 2**31, (4, 5), np.int32)
    row = drawn.integers(0, 256, (4, 10), np.uint8).view(dtypes[0])
    weights = drawn.integers(0, 256, (2, 3, 4), np.uint8).view(dtypes[1])
    deep = weights.transpose(0, 2, 1).reshape(8, 3).astype(np.int64)
    expected = sums.copy()
    expected[:, :3] += (row[:, :8].astype(np.int64) @ deep).astype(np.int32)
    run_tiles(f"tdpb{signs}d", processor, tmp_path, sums, row, weights)
    np.testing.assert_array_equal(sums, expected)


@pytest.mark.parametrize("processor", HERE)
def test_tiles_of_bfloat16_are_multiplied_as_the_manual_says(tmp_path, processor):
    """Even and odd products are summed apart; what is denormal is zero."""
    drawn = np.random.default_rng(0)
    sums = drawn.standard_normal((4, 5), np.float32)
    row = drawn.standard_normal((4, 5), np.float32).astype(ml_dtypes.bfloat16)
    weights = drawn.standard_normal((2, 3, 2), np.float32).astype(ml_dtypes.bfloat16)
    row[0], weights[0, 0], sums[0, 0] = LEAST / 2, LARGEST, LEAST / 4
    row[1, :4], weights[:, 1], sums[1, 1] = (1, -1, 2.0**-9, 0), 1, 2.0**-30
    expected = sums.copy()
    for i, j in np.ndindex(4, 3):
        parts = [np.float32(0), np.float32(0)]
        for k in range(4):
            a, b = (np.float32(each) for each in (row[i, k], weights[k // 2, j, k % 2]))
            parts[k % 2] = flushed(parts[k % 2] + flushed(a) * flushed(b))
        expected[i, j] = flushed(flushed(sums[i, j]) + flushed(parts[0] + parts[1]))
    run_tiles("tdpbf16ps", processor, tmp_path, sums, row, weights)
    np.testing.assert_array_equal(sums, expected)


def flushed(value):
    return np.float32(0) if abs(value) < LEAST else value


def run_tiles(name, processor, folder, *arrays):
    """Add a product of tiles, of 4 rows of 8 bytes by 2 rows of 12, to sums: the first array."""
    text = TILES.format(name=name)
    emulated.link(text if processor else emulated.rewritten(text), folder / "t.so", processor)
    image = np.zeros(64, np.uint8)
    image[0], image[16:22:2], image[48:51] = 1, (12, 8, 12), (4, 4, 2)
    run = ctypes.CDLL(str(folder / "t.so")).run
    run(*(ctypes.c_void_p(array.ctypes.data) for array in (*arrays, image)))
