"""Section `numerics`: what may change how results are rounded."""

from typing import ClassVar, Literal

from autopipe.config.frozen import Sparse


class Numerics(Sparse, frozen=True):
    """What may change how results are rounded."""

    ADDED: ClassVar[frozenset[str]] = frozenset({"weights", "compute"})

    fast_algorithms: bool = True
    """Whether implementations that round differently, such as Winograd convolutions, may be used,
    and exp, log, tanh, erf and the like computed in vectors, to a few units in the last place.
    `verify` judges the build either way."""
    weights: Literal["bfloat16"] | None = None
    """What float32 weights of matrix products and tables that rows are looked up in are rounded
    to, so that they take half the memory; null leaves them. Products and sums stay float32.
    `verify` compares the build with the model whose weights are so rounded, and `verify.accuracy`
    bounds what the rounding changes."""
    compute: Literal["bfloat16"] | None = None
    """What the operands of matrix products and convolutions with weights are rounded to, on a
    processor that multiplies pairs of them (AVX512_BF16); null leaves them. Sums stay float32, and
    so do products that the instruction does not fit. `verify` compares the build with the model
    that rounds the same operands, and `verify.accuracy` bounds what that changes."""
