"""The model as reference runtimes get it: vetted, not cleaned up, weights in a file beside it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import ModelProto, TensorProto

from autopipe.compiler.frontends.onnx.reading.tensors import Array
from autopipe.compiler.frontends.onnx.reading.weights import undeclare_inputs

_ALIGNMENT: Final = 64
_MODEL: Final = "reference.onnx"
_ORIGINAL: Final = "original.onnx"
_WEIGHTS: Final = "reference.weights"
_IR_VERSION: Final = 10
"""What came after it are element types that no model here has; onnxruntime refuses a file that says
it is newer than onnxruntime is, whatever is in it."""


def write_reference(
    model: ModelProto, weights: Mapping[str, Array], original: ModelProto | None, folder: Path
) -> None:
    """Write `reference.onnx` and `reference.weights`; `model` has the weights as inputs.

    `original` is the model as its author wrote it, with the same weights as inputs; None leaves
    `original.onnx` out.
    """
    tensors = _write_weights(weights, folder)
    for made, name in ((model, _MODEL), (original, _ORIGINAL)):
        if made is not None:
            written = onnx.ModelProto()
            written.CopyFrom(made)
            written.ir_version = min(written.ir_version, _IR_VERSION)
            undeclare_inputs(written.graph, weights.keys())
            written.graph.initializer.extend(tensors)
            (folder / name).write_bytes(written.SerializeToString(deterministic=True))


def _write_weights(weights: Mapping[str, Array], folder: Path) -> list[TensorProto]:
    """Write the weights into a file, and return the tensors that name their places in it."""
    tensors = []
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
            file.write(little.reshape(-1).view(np.uint8).data)  # `tofile` hides the error's number
            tensors.append(tensor)
    return tensors
