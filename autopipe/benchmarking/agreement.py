"""Check that a reference runtime and the build compute the same outputs."""

from pathlib import Path
from typing import Final

import numpy as np
from safetensors.numpy import load_file

_OFF: Final = 0.05
"""Tolerance relative to the largest value of an output, larger than any rounding."""


def find_disagreement(ours: Path, theirs: Path) -> str | None:
    """Return how the outputs of a reference runtime differ from ours, or None if they agree.

    Both files hold the outputs by position. Integer outputs are not compared: with equal maxima,
    the result of an argmax may be any of them.
    """
    expected_outputs, actual_outputs = load_file(ours), load_file(theirs)
    for name, array in expected_outputs.items():
        actual = actual_outputs.get(name)
        if actual is None or actual.shape != array.shape:
            shape = "missing" if actual is None else f"of shape {actual.shape}, not {array.shape}"
            return f"its output {name} is {shape}"
        if array.dtype.kind != "f" or not array.size:
            continue
        finite = np.isfinite(array)
        largest = float(np.abs(array, where=finite, out=np.zeros_like(array)).max())
        off = float(np.abs(np.where(finite, actual - np.where(finite, array, 0), 0)).max())
        if not off <= _OFF * largest:  # nan is off, too
            return f"its output {name} is wrong: off by {off:.2g}, the largest is {largest:.2g}"
    return None
