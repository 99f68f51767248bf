"""MatMulNBits of onnxruntime: a matrix product with weights stored in 4 or 8 bits.

Constant folding in the clean-up converts the weights to floats: the build is as fast as that of the
same model in float32, and as large.
"""

from functools import partial
from typing import Final

from onnx import TensorProto

from autopipe.compiler.frontends.onnx.operator import MICROSOFT, Operator
from autopipe.compiler.frontends.onnx.rewriting.body_writer import BodyWriter, write_body

_HALF: Final = 4
"""The width of which two numbers share a byte, the first in the lower bits."""
_BITS: Final = (_HALF, 8)
_SCALES, _ZERO_POINTS, _GROUPS, _BIAS = 2, 3, 4, 5
"""Indices of inputs."""
_MIN_OPSET: Final = 18
"""The first opset with BitwiseAnd."""


def _write_product(body: BodyWriter) -> None:
    bits = int(body.attributes.get("bits", _HALF))
    if bits not in _BITS:
        raise body.refuse(f"weights of {bits} bits are not supported")
    if body.name_input(_GROUPS):
        raise body.refuse("an order of groups, g_idx, is not supported")
    if body.opset < _MIN_OPSET:
        raise body.refuse(f"opset {body.opset} is too old for it; convert the model to 18")
    rows, columns, block = (body.require_size(name) for name in ("N", "K", "block_size"))
    blocks = -(-columns // block)
    values = _add_numbers(body, body.name_input(1), bits, [rows, blocks, block])
    values = body.add("Sub", [values, _add_zero_points(body, bits, rows, blocks)])
    scales = body.add("Reshape", [body.name_input(_SCALES), body.add_ints(rows, blocks, 1)])
    values = body.add("Mul", [values, scales])
    values = body.add("Reshape", [values, body.add_ints(rows, blocks * block)])
    if blocks * block > columns:
        ends = [body.add_ints(number) for number in (0, columns, 1)]
        values = body.add("Slice", [values, *ends])
    product = [body.name_input(0), body.add("Transpose", [values], perm=[1, 0])]
    if body.name_input(_BIAS):
        body.end("Add", [body.add("MatMul", product), body.name_input(_BIAS)])
    else:
        body.end("MatMul", product)


def _add_zero_points(body: BodyWriter, bits: int, rows: int, blocks: int) -> str:
    """Add the zero point, per block or a single one, and return its name."""
    packed_points = body.name_input(_ZERO_POINTS)
    if not packed_points:
        middle = body.add_ints(1 << (bits - 1))
        return body.add("CastLike", [middle, body.name_input(_SCALES)])
    kind = body.operands[_ZERO_POINTS].type.tensor_type.elem_type
    if kind != TensorProto.UINT8:
        return body.add("Reshape", [packed_points, body.add_ints(rows, blocks, 1)])
    stored_blocks = blocks + blocks % 2 if bits == _HALF else blocks  # each row has whole bytes
    points = _add_numbers(body, packed_points, bits, [rows, stored_blocks, 1])
    if stored_blocks > blocks:
        ends = [body.add_ints(number) for number in (0, blocks, 1)]
        points = body.add("Slice", [points, *ends])
    return points


def _add_numbers(body: BodyWriter, packed_numbers: str, bits: int, shape: list[int]) -> str:
    """Unpack 4-bit or 8-bit numbers into floats of a shape, and return their name."""
    if bits == _HALF:
        mask, shift = (
            body.add("Cast", [body.add_ints(number)], to=TensorProto.UINT8) for number in (15, 4)
        )
        last = body.add_ints(-1)
        halves = [
            body.add("BitwiseAnd", [packed_numbers, mask]),
            body.add("BitShift", [packed_numbers, shift], direction="RIGHT"),
        ]
        packed_numbers = body.add(
            "Concat", [body.add("Unsqueeze", [half, last]) for half in halves], axis=-1
        )
    numbers = body.add("Reshape", [packed_numbers, body.add_ints(*shape)])
    return body.add("CastLike", [numbers, body.name_input(_SCALES)])


OPERATORS: Final = (
    Operator(
        name="MatMulNBits",
        domain=MICROSOFT,
        inputs=("A", "B", "scales"),
        body=partial(write_body, _write_product),
    ),
)
