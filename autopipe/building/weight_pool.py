"""The weights of a package: each array once, however many libraries call it."""

import hashlib
from collections.abc import Iterable

import numpy as np

from autopipe.artifacts.signature import number_weight
from autopipe.compiler.step_counter import count_each


class WeightPool:
    """Arrays by name, in the order of their file."""

    def __init__(self) -> None:
        """Begin without arrays."""
        self.arrays: dict[str, np.ndarray] = {}
        self._names: dict[tuple[object, ...], str] = {}

    def add(self, values: Iterable[np.ndarray]) -> tuple[str, ...]:
        """Add the weights of a library; return their names, in order. Duplicates share a name.

        The first library's weights have distinct names, even equal ones.
        """
        first = not self.arrays
        names = []
        for value in count_each("weights digested", list(values)):
            earlier_name = None if first else self._names.get(_digest_array(value))
            name = earlier_name or number_weight(len(self.arrays))
            if earlier_name is None:
                self.arrays[name] = value
                self._names.setdefault(_digest_array(value), name)
            names.append(name)
        return tuple(names)


def _digest_array(value: np.ndarray) -> tuple[object, ...]:
    data = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
    return value.shape, value.dtype.str, hashlib.sha256(data).digest()
