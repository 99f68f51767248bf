"""Converters of nodes that work along an axis whose size is open."""

from typing import Any, Final

import numpy as np
from tvm import relax, tirx

from autopipe.compiler.frontends.onnx import known
from autopipe.compiler.frontends.onnx.along import backwards
from autopipe.compiler.frontends.onnx.one_hot import compute_one_hot
from autopipe.compiler.frontends.onnx.open.extents import (
    Extents,
    advice,
    is_open,
    shape_of,
    whole,
    wide,
)
from autopipe.compiler.frontends.onnx.open.shaping import called
from autopipe.compiler.frontends.onnx.tensors import Array
from autopipe.errors import ModelError

# ruff: noqa: ANN401, ARG001  TVM's converters have no types, and all of these have one signature


_ORDERS: Final = {"DCR": [0, 3, 5, 1, 2, 4], "CRD": [0, 1, 3, 5, 2, 4]}
"""Order of the axes of blocks in SpaceToDepth."""


def hardmax(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """Hardmax along an open axis."""
    data = inputs[0]
    sizes = extents.shape(data, called("Hardmax", attr))
    axis = int(attr.get("axis", -1)) % len(sizes)
    if not is_open(sizes[axis : axis + 1]):
        return None
    largest = bb.emit(relax.op.argmax(data, axis, keepdims=True))
    places = bb.emit(relax.op.arange(whole(0), wide(sizes[axis]), whole(1), "int64"))
    shape = [size if at == axis else 1 for at, size in enumerate(sizes)]
    places = bb.emit(relax.op.reshape(places, shape_of(shape)))
    return relax.op.astype(bb.emit(relax.op.equal(places, largest)), data.ty.dtype)


def one_hot(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """OneHot of an open depth."""
    if numbers[1] is None or not is_open(numbers[1].reshape(-1)[:1]):
        return None
    depth = numbers[1].reshape(-1)[0]
    row = bb.emit(relax.op.arange(whole(0), wide(depth), whole(1), "int64"))
    number: Array = np.empty((), object)
    number[()] = depth
    return compute_one_hot(bb, inputs, attr, extents.put(bb, number, "int64"), row)


def deepened(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """SpaceToDepth."""
    data, block = inputs[0], int(attr["blocksize"])
    batch, channels, *image = extents.shape(data, called("SpaceToDepth", attr))
    if not is_open([batch, *image]):
        return None
    rows, columns = (extents.simple(tirx.floordiv(wide(size), whole(block))) for size in image)
    parts = bb.emit(
        relax.op.reshape(data, shape_of([batch, channels, rows, block, columns, block]))
    )
    turned = bb.emit(relax.op.permute_dims(parts, _ORDERS[known.text(attr.get("mode", b"DCR"))]))
    return relax.op.reshape(turned, shape_of([batch, channels * block * block, rows, columns]))


def turned(extents: Extents, bb: Any, inputs: Any, numbers: Any, attr: Any) -> Any:
    """ReverseSequence of an open batch, or of open lengths."""
    data, lengths = inputs[:2]
    what = called("ReverseSequence", attr)
    sizes = extents.shape(data, what)
    time, batch = (int(attr.get(f"{name}_axis", axis)) % len(sizes)
                   for axis, name in enumerate(("time", "batch")))  # fmt: skip
    if not is_open([sizes[batch]]):
        return None
    (count,) = extents.shape(lengths, what)
    if not extents.equal(count, sizes[batch]):
        raise ModelError(f"{what} has {count} lengths for a batch of {sizes[batch]}; "
                         f"{advice([sizes[batch], count])}")  # fmt: skip
    return bb.emit_te(backwards(time, batch), data, lengths, primfunc_name_hint="reverse_sequence")


RULES: Final = {
    "Hardmax": hardmax,
    "OneHot": one_hot,
    "SpaceToDepth": deepened,
    "ReverseSequence": turned,
}
