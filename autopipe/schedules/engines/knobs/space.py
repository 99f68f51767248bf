"""The settings of a template, from which a tuner chooses."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.templates.serve import AnyServed
from autopipe.schedules.templates.template import dump

LARGEST: Final = 20_000
"""Maximum settings of a space; a larger one is sampled at random."""


@dataclass(frozen=True, slots=True)
class Space:
    """Settings of one template for one function; a tuner identifies them by their index."""

    served: AnyServed
    hardware: HardwareParams
    settings: Sequence[Any]
    """Frozen dataclasses of JSON values; the first is that of `template.fill`."""

    @classmethod
    def of(cls, served: AnyServed, hardware: HardwareParams, seed: int) -> "Space":
        """Create the space of a template for a function."""
        settings = served.template.settings(served.match, hardware)
        other_settings = (knobs for knobs in settings if knobs != served.knobs)
        some = _sample_items(other_settings, LARGEST - 1, random.Random(seed))  # noqa: S311 - no secret
        return cls(served, hardware, (served.knobs, *some))

    def document(self, index: int) -> str:
        """Serialize a setting as `replay` reads it."""
        return dump(self.served.template, self.settings[index])


def _sample_items(items: Iterable[Any], most: int, rng: random.Random) -> list[Any]:
    """Sample at most `most` items, each with the same probability (Vitter's algorithm R)."""
    sample: list[Any] = []
    for position, item in enumerate(items):
        if position < most:
            sample.append(item)
        elif (place := rng.randrange(position + 1)) < most:
            sample[place] = item
    return sample
