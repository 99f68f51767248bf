"""Expected mean and mean square of values in a network, and the roles of its weights.

The weights of a layer are scaled by these moments. Values are approximated as independent and
normal. Results are rounded, so that they are equal with every C library.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["kernel", "scale", "shift", "mean", "variance", "table"]


class Moments(NamedTuple):
    """The first two moments of a value's elements."""

    mean: float
    square: float

    @property
    def variance(self) -> float:
        """The square of the deviation from the mean."""
        return max(self.square - self.mean * self.mean, 0.0)


@dataclass(frozen=True)
class Role:
    """The purpose of a weight, and the moments of the values it is applied to."""

    kind: Kind
    data: Moments
    """Moments of the layer's input."""
    fan_in: int = 1
    """Products per output element."""


NORMAL = Moments(0.0, 1.0)
"""Of standard normal values."""

_LIMIT = 1e6


def round_moments(mean: float, square: float) -> Moments:
    """Return rounded moments, with the mean square kept away from zero and from infinity."""
    return Moments(round(mean, 9), round(min(max(square, 1 / _LIMIT), _LIMIT), 9))


def rectified(data: list[Moments]) -> Moments:
    """Return the moments of max(x, 0) for a normal x."""
    mean, square = data[0]
    deviation = math.sqrt(data[0].variance) or 1e-9
    ratio = mean / deviation
    above = (1 + math.erf(ratio / math.sqrt(2))) / 2
    density = math.exp(-ratio * ratio / 2) / math.sqrt(2 * math.pi) * deviation
    return Moments(mean * above + density, square * above + mean * density)


def largest(data: list[Moments]) -> Moments:
    """Return the moments of the maximum of a few correlated values, as in an image."""
    mean = data[0].mean + 0.5 * math.sqrt(data[0].variance)
    return Moments(mean, mean * mean + 0.8 * data[0].variance)


def total(data: list[Moments]) -> Moments:
    """Return the moments of a sum."""
    mean = sum(value.mean for value in data)
    return Moments(mean, mean * mean + sum(value.variance for value in data))


def difference(data: list[Moments]) -> Moments:
    """Return the moments of the first value minus the others."""
    mean = data[0].mean - sum(value.mean for value in data[1:])
    return Moments(mean, mean * mean + sum(value.variance for value in data))


def product(data: list[Moments]) -> Moments:
    """Return the moments of a product."""
    return Moments(math.prod(x.mean for x in data), math.prod(x.square for x in data))


def quotient(data: list[Moments]) -> Moments:
    """Return the moments of the first value divided by the others."""
    divisor = math.prod(value.square for value in data[1:])
    return Moments(data[0].mean / math.sqrt(divisor), data[0].square / divisor)


def squared(data: list[Moments]) -> Moments:
    """Return the moments of the square of a normal value."""
    return Moments(data[0].square, 3 * data[0].square ** 2)


def rooted(data: list[Moments]) -> Moments:
    """Return the moments of a square root."""
    return Moments(math.sqrt(abs(data[0].mean)), abs(data[0].mean))


def averaged(data: list[Moments]) -> Moments:
    """Return the moments of the mean of a few correlated values, as in an image."""
    mean = data[0].mean
    return Moments(mean, mean * mean + 0.6 * data[0].variance)


def mixed(data: list[Moments]) -> Moments:
    """Return the moments of values that are each selected from one of the inputs."""
    count = len(data)
    return Moments(sum(x.mean for x in data) / count, sum(x.square for x in data) / count)


def squashed(data: list[Moments]) -> Moments:  # noqa: ARG001  takes what all rules take
    """Return the moments of values between 0 and 1."""
    return Moments(0.5, 0.3)


def product_of_rows(data: list[Moments], length: int) -> Moments:
    """Return the moments of sums of `length` products."""
    mean, square = product(data)
    return Moments(mean * length, square * length)


def softmax(data: list[Moments], length: int) -> Moments:  # noqa: ARG001  takes what all rules take
    """Return the moments of `length` values with sum 1."""
    return Moments(1 / length, 3 / length**2)
