"""Bound the integers that a model takes as inputs, such as indices into a table."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from autopipe.artifacts.model import ImportedModel
from autopipe.artifacts.signature import Port
from autopipe.errors import AutopipeError
from autopipe.store import arrays
from autopipe.verification import reference
from autopipe.verification.inputs import ARBITRARY_INTEGERS, draw_inputs
from autopipe.verification.reference import MODEL, RUNTIMES

_BOUNDS: Final = tuple(ARBITRARY_INTEGERS >> halvings for halvings in range(8))
_INTEGERS: Final = frozenset({"int16", "int32", "int64", "uint16", "uint32", "uint64"})


def find_input_limits(model: Path, ports: Sequence[Port]) -> dict[str, int]:
    """Map names of inputs to exclusive upper bounds of their values; not all inputs have one.

    `model` is the artifact of *import*, which lists the inputs that are indices. Bounds of other
    integers, such as lengths and positions, are halved until onnxruntime accepts them.
    """
    limits = ImportedModel.read(model).selects
    free = [port for port in ports if port.dtype in _INTEGERS and port.name not in limits]
    if not free or not (model / MODEL).exists():
        return limits
    with TemporaryDirectory() as work:
        trial_files = {
            bound: _write_trial_inputs(Path(work), ports, limits, free, bound) for bound in _BOUNDS
        }
        files = [file for pair in trial_files.values() for file in pair]
        try:
            refused_files = reference.expect(RUNTIMES, model, files, files).refused
        except AutopipeError:  # it is not installed, or does not take the model
            return limits
    accepted_bounds = [
        bound
        for bound, pair in trial_files.items()
        if not any(file.with_suffix(".expected") in refused_files for file in pair)
    ]
    if not accepted_bounds or accepted_bounds[0] == ARBITRARY_INTEGERS:
        return limits
    return limits | {port.name: accepted_bounds[0] for port in free}


def _write_trial_inputs(
    folder: Path,
    ports: Sequence[Port],
    limits: Mapping[str, int],
    free: Sequence[Port],
    bound: int,
) -> tuple[Path, Path]:
    """Write inputs with free integers below a bound: random ones, and the largest ones."""
    drawn_arrays = draw_inputs(ports, {**limits, **{port.name: bound for port in free}}, (bound,))
    largest = {port.name: np.full_like(drawn_arrays[port.name], bound - 1) for port in free}
    files = (folder / f"{bound}.safetensors", folder / f"{bound}-largest.safetensors")
    arrays.save(drawn_arrays, files[0])
    arrays.save(drawn_arrays | largest, files[1])
    return files
