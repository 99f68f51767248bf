"""Write the reference with weights perturbed by less than any program can distinguish.

An int8 model rounds its intermediate values, so that two correct programs differ by its steps.
Perturbed inputs show by how much. Where all inputs are integers, the weights are perturbed instead.
"""

import shutil
from pathlib import Path
from typing import Final

import numpy as np

from autopipe.artifacts.model import ImportedModel
from autopipe.verification.reference import MODEL, MODULE, WEIGHTS

_MOST: Final = 2**30
"""Bytes of weights; a protobuf holds no more than twice as many."""


def write_moved_weights(import_artifact: Path, folder: Path, seed: int, share: float) -> bool:
    """Write the reference of an artifact of *import* into a folder with perturbed float weights.

    Each changes by a relative share, up or down. Constants inside the graph stay: they may be
    sizes. Return whether there are any float weights, and not too many.
    """
    if not (import_artifact / MODEL).exists():
        return _write_plain_moved(import_artifact, folder, seed, share)
    import onnx
    from onnx import numpy_helper

    model = onnx.load(import_artifact / MODEL, load_external_data=False)
    generator = np.random.Generator(np.random.PCG64(seed))
    outside = [
        tensor
        for tensor in model.graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
    ]
    arrays = [numpy_helper.to_array(tensor, str(import_artifact)) for tensor in outside]
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


def _write_plain_moved(import_artifact: Path, folder: Path, seed: int, share: float) -> bool:
    """Write the module of the reference `plain` with perturbed float weights."""
    from autopipe.compiler import module_io

    arrays = module_io.load_weights(import_artifact / WEIGHTS)
    if sum(array.nbytes for array in arrays.values()) > _MOST:
        return False
    folder.mkdir(exist_ok=True)
    for name in (MODULE, ImportedModel.FILE):
        shutil.copyfile(import_artifact / name, folder / name)
    generator = np.random.Generator(np.random.PCG64(seed))
    perturbed_weights = {
        name: _perturb_weights(array, generator, share) for name, array in arrays.items()
    }
    module_io.save_weights(perturbed_weights, folder / WEIGHTS)
    return any(array.dtype.kind == "f" for array in arrays.values())


def _perturb_weights(array: np.ndarray, generator: np.random.Generator, share: float) -> np.ndarray:
    """Perturb each float of an array by a relative share; return other dtypes unchanged."""
    if array.dtype.kind != "f":
        return array
    signs = generator.choice([-1.0, 1.0], array.shape)
    return np.asarray(array * (1 + signs * share), array.dtype)
