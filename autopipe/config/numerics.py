"""Section `numerics`: options that change the rounding of results."""

from typing import Literal

from autopipe.config.frozen import Frozen


class Numerics(Frozen, frozen=True):
    """Options that change the rounding of results."""

    fast_algorithms: bool = True
    """Whether to allow implementations that round differently, such as Winograd convolutions, and
    vectorized exp, log, tanh, erf and the like, accurate to a few units in the last place. `verify`
    judges the build either way."""
    weights: Literal["bfloat16"] | None = None
    """The dtype to which float32 weights of matmuls and embedding tables are rounded, which halves
    their memory; null keeps them. Products and sums stay float32. `verify` compares the build with
    the model that has the rounded weights, and `verify.accuracy` bounds the effect of the
    rounding."""
    compute: Literal["bfloat16"] | None = None
    """The dtype to which operands of matmuls and convolutions with weights are rounded, on a
    processor with dot products of pairs (AVX512_BF16); null keeps them. Sums stay float32, and so
    do products that the instruction does not support. `verify` compares the build with the model
    that rounds the same operands, and `verify.accuracy` bounds the effect of the rounding."""
