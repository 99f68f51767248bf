"""An ONNX model as *import* would leave it, for tests that need no Relax module of it."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx

from autopipe.artifacts.promises import OutputPromises
from autopipe.compiler.frontends.onnx.facts.index_limits import find_index_limits
from autopipe.compiler.frontends.onnx.facts.promises import derive_promises
from tests.artifacts.examples import imported


def save_imported(model: onnx.ModelProto, folder: Path, **fields: Any) -> Path:
    """Write `reference.onnx`, and `model.json` with what follows from the graph."""
    onnx.save(model, folder / "reference.onnx")
    describe_imported(model, folder, **fields)
    return folder


def describe_imported(model: onnx.ModelProto, folder: Path, **fields: Any) -> None:
    """Write `model.json` alone."""
    limits = find_index_limits(model.graph, [value.name for value in model.graph.input])
    imported(selects=limits, promises=promises_of(model), **fields).write(folder)


def promises_of(model: onnx.ModelProto) -> OutputPromises:
    """Return what a model promises of its outputs."""
    dtypes = {
        value.name: np.dtype(
            onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        ).name
        for value in model.graph.output
    }
    return derive_promises(model.graph, {}, dtypes)
