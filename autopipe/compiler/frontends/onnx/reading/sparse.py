"""Convert sparse tensors to dense tensors."""

from typing import Final

import numpy as np
from onnx import GraphProto, SparseTensorProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.reading import tensors
from autopipe.compiler.frontends.onnx.reading.tensors import Array
from autopipe.errors import ModelError

_MOST_BYTES: Final = 2**30
"""Maximum bytes of a densified tensor: a few bytes can declare any size."""


def write_out(graph: GraphProto) -> None:
    """Convert the sparse initializers and sparse Constants of a graph to dense ones."""
    for sparse in graph.sparse_initializer:
        graph.initializer.append(numpy_helper.from_array(_make_dense(sparse), sparse.values.name))
    del graph.sparse_initializer[:]
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "sparse_value":
                value = numpy_helper.from_array(_make_dense(attribute.sparse_tensor))
                attribute.CopyFrom(helper.make_attribute("value", value))


def _make_dense(sparse: SparseTensorProto) -> Array:
    label = f"sparse tensor {sparse.values.name!r}"
    for part in (sparse.values, sparse.indices):
        if tensors.read_location(part) is not None:
            raise ModelError(f"{label} has its data in another file, which is not supported")
        tensors.check_tensor(part)
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    shape = tuple(sparse.dims)
    if tensors.count_elements(shape, label) * values.itemsize > _MOST_BYTES:
        raise ModelError(
            f"{label} takes more than {_MOST_BYTES} bytes when it is dense: {list(shape)}"
        )
    dense: Array = np.zeros(shape, values.dtype)
    is_flat = indices.ndim == 1
    is_fitting = indices.shape == values.shape or indices.shape == (*values.shape, len(shape))
    most = np.array(dense.size if is_flat else shape)
    if values.ndim != 1 or not is_fitting or ((indices < 0) | (indices >= most)).any():
        raise ModelError(f"{label} has indices that do not fit {list(shape)} and its values")
    if is_flat:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense
