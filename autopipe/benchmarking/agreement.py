"""Whether a rival computes what the build computes: who computes something else is no rival."""

from pathlib import Path
from typing import Final

import numpy as np
from safetensors.numpy import load_file

_OFF: Final = 0.05
"""Of the largest number of an output: runtimes round in many ways, and this is none of them."""


def find_disagreement(ours: Path, theirs: Path) -> str | None:
    """Return how the outputs of a rival differ from ours, or None where they do not.

    Both files hold the outputs under their places. Whole numbers are not compared: a place of the
    largest of two equal ones may be either.
    """
    expected, found = load_file(ours), load_file(theirs)
    for name, array in expected.items():
        other = found.get(name)
        if other is None or other.shape != array.shape:
            shape = "missing" if other is None else f"of shape {other.shape}, not {array.shape}"
            return f"its output {name} is {shape}"
        if array.dtype.kind != "f" or not array.size:
            continue
        finite = np.isfinite(array)
        largest = float(np.abs(array, where=finite, out=np.zeros_like(array)).max())
        off = float(np.abs(np.where(finite, other - np.where(finite, array, 0), 0)).max())
        if not off <= _OFF * largest:  # nan is off, too
            return f"its output {name} is wrong: off by {off:.2g}, the largest is {largest:.2g}"
    return None
