"""Section `numerics`: what may change how results are rounded."""

from autopipe.config.frozen import Frozen


class Numerics(Frozen, frozen=True):
    """What may change how results are rounded."""

    fast_algorithms: bool = True
    """Whether implementations that round differently, such as Winograd convolutions, may be used,
    and exp, log, tanh, erf and the like computed in vectors, to a few units in the last place.
    `verify` judges the build either way."""
