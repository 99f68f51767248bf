"""Write the model for reference runtimes: vetted, not cleaned up, weights as external data."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import ModelProto, TensorProto

from autopipe.compiler.frontends.onnx.reading.tensors import Array
from autopipe.compiler.frontends.onnx.reading.weights import undeclare_inputs
from autopipe.compiler.step_counter import count_bytes

_ALIGNMENT: Final = 64
_MODEL: Final = "reference.onnx"
_ORIGINAL: Final = "original.onnx"
_WEIGHTS: Final = "reference.weights"
_IR_VERSION: Final = 10
"""Later versions only add element types that are not supported here; onnxruntime rejects a file of
a newer version than its own."""


def write_reference(
    model: ModelProto, weights: Mapping[str, Array], original: ModelProto | None, folder: Path
) -> None:
    """Write `reference.onnx` and `reference.weights`; `model` has the weights as inputs.

    `original` is the model in its original form, with the same weights as inputs; with None
    `original.onnx` is not written.
    """
    tensors = _write_weights(weights, folder)
    for source, name in ((model, _MODEL), (original, _ORIGINAL)):
        if source is not None:
            copy = onnx.ModelProto()
            copy.CopyFrom(source)
            copy.ir_version = min(copy.ir_version, _IR_VERSION)
            undeclare_inputs(copy.graph, weights.keys())
            copy.graph.initializer.extend(tensors)
            (folder / name).write_bytes(copy.SerializeToString(deterministic=True))


def _write_weights(weights: Mapping[str, Array], folder: Path) -> list[TensorProto]:
    """Write the weights to a file, and return tensors with their locations in it."""
    tensors = []
    report = count_bytes("MiB written for references", sum(one.nbytes for one in weights.values()))
    with (folder / _WEIGHTS).open("wb") as file:
        for name, values in weights.items():
            file.write(b"\0" * (-file.tell() % _ALIGNMENT))
            tensor = onnx.TensorProto(
                name=name,
                data_type=onnx.helper.np_dtype_to_tensor_dtype(values.dtype),
                dims=values.shape,
                data_location=onnx.TensorProto.EXTERNAL,
            )
            place = {"location": _WEIGHTS, "offset": file.tell(), "length": values.nbytes}
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
            little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
            file.write(little.reshape(-1).view(np.uint8).data)  # `tofile` loses errno
            tensors.append(tensor)
            report(values.nbytes)
    return tensors
