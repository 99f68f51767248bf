"""What the tests take an instruction for, in numbers that tell it from its likes."""

import ctypes

import ml_dtypes
import numpy as np
import pytest

from autopipe.compiler.target.cpu import available
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
            marks=pytest.mark.skipif("avx512bf16" not in available(), reason="not this CPU"),
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
