"""The reference with weights that are moved by what no program can tell apart.

A model of bytes rounds what it computes, so that two right programs part at its steps. Moved inputs
show by how much. Where all inputs are integers, the weights are moved instead.
"""

import shutil
from pathlib import Path
from typing import Final

import numpy as np

from autopipe.artifacts.model import ImportedModel
from autopipe.verification.reference import MODEL, MODULE, WEIGHTS

_MOST: Final = 2**30
"""Bytes of weights; a protobuf holds no more than twice as many."""


def write_moved_weights(imported: Path, folder: Path, seed: int, share: float) -> bool:
    """Write the reference of an artifact of *import* into a folder, its float weights moved.

    Each is moved by a share of itself, up or down. Numbers that stand in the graph stay: they may
    be sizes. Return whether there were any weights to move, and not too many.
    """
    if not (imported / MODEL).exists():
        return _write_plain_moved(imported, folder, seed, share)
    import onnx
    from onnx import numpy_helper

    model = onnx.load(imported / MODEL, load_external_data=False)
    generator = np.random.Generator(np.random.PCG64(seed))
    outside = [
        tensor
        for tensor in model.graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
    ]
    arrays = [numpy_helper.to_array(tensor, str(imported)) for tensor in outside]
    if sum(array.nbytes for array in arrays) > _MOST:
        return False
    floats = False
    for tensor, array in zip(outside, arrays, strict=True):
        floats |= array.dtype.kind == "f"
        values = _perturb_weights(array, generator, share)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    folder.mkdir(exist_ok=True)
    onnx.save(model, folder / MODEL)
    return floats


def _write_plain_moved(imported: Path, folder: Path, seed: int, share: float) -> bool:
    """Do the same for what the reference `plain` runs."""
    from autopipe.compiler import module_io

    arrays = module_io.load_weights(imported / WEIGHTS)
    if sum(array.nbytes for array in arrays.values()) > _MOST:
        return False
    folder.mkdir(exist_ok=True)
    for name in (MODULE, ImportedModel.FILE):
        shutil.copyfile(imported / name, folder / name)
    generator = np.random.Generator(np.random.PCG64(seed))
    moved = {name: _perturb_weights(array, generator, share) for name, array in arrays.items()}
    module_io.save_weights(moved, folder / WEIGHTS)
    return any(array.dtype.kind == "f" for array in arrays.values())


def _perturb_weights(array: np.ndarray, generator: np.random.Generator, share: float) -> np.ndarray:
    """Return an array of floats with each moved by a share of itself; any other as it is."""
    if array.dtype.kind != "f":
        return array
    signs = generator.choice([-1.0, 1.0], array.shape)
    return np.asarray(array * (1 + signs * share), array.dtype)
