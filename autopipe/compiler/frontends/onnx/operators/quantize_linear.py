"""Quantization and its inverse."""

from collections.abc import Callable
from typing import Any, Final, TypeGuard

import numpy as np
from tvm import relax
from tvm.ir import Expr, GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Convert,
    Converter,
    Inputs,
    Parameters,
    find_optional_input,
)
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.compiler.frontends.onnx.reading.tensors import to_dtype_name
from autopipe.errors import ModelError

# ruff: noqa: ARG003  TVM's converters have one signature

_BYTES: Final = ("uint8", "int8")
_SUMS: Final = "int32"
_IMAGES: Final = (4, 5)
"""Ranks of images and volumes."""
Operands = tuple[Expr, Expr, Expr | None]
"""Data, scale and zero point."""

Steps = Callable[[BlockBuilder, Operands, str | None, tuple[str, ...]], Expr | None]
"""Of block builder; data, scale and zero point; the dtype that is asked for; and those that are
taken. None for others, where TVM's converter has to do."""


_IN_BLOCKS: Final = (*_BYTES, "uint16", "int16")
"""A float has them all. What is not in blocks TVM's own converter takes."""


class DynamicQuantizeLinear(onnx_frontend.OnnxOpConverter):
    """Quantization to the range of the data, which may be empty."""

    @classmethod
    def _impl_v11(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        return relax.Tuple(quantize_to_range(bb, inputs[0]))


def quantize_to_range(bb: BlockBuilder, data: Expr) -> tuple[Expr, Expr, Expr]:
    """Return data as uint8, their scale and their zero point, which follow from their range."""
    none, most, one = map(_make_single, (0.0, 255.0, 1.0))
    high = relax.op.maximum(none, _reduce_to_extreme(bb, relax.op.max, data))
    low = relax.op.minimum(none, _reduce_to_extreme(bb, relax.op.min, data))
    span = bb.normalize(relax.op.subtract(high, low))
    empty = relax.op.equal(span, none)
    scale = relax.op.where(empty, one, relax.op.divide(span, most))
    scale = bb.normalize(scale)
    zero = relax.op.divide(relax.op.negative(low), scale)
    zero = bb.normalize(relax.op.round(relax.op.clip(zero, 0, 255)))
    zero = bb.normalize(relax.op.astype(zero, "uint8"))
    return _round_to_steps(bb, (data, scale, zero), "uint8"), scale, zero


def _reduce_to_extreme(bb: BlockBuilder, op: Callable[..., Expr], data: Expr) -> Expr:
    """Reduce to one number, over neighbours in memory last: till then, vectors stay whole."""
    rank = data.ty.ndim
    last = 1 if rank in _IMAGES else rank - 1  # the channels, last in the layout of processors
    outer = [axis for axis in range(rank) if axis != last]
    rows = bb.normalize(op(data, outer)) if outer else data
    return bb.normalize(op(rows))


def _quantize_tensor(
    bb: BlockBuilder, given: Operands, wanted: str | None, dtypes: tuple[str, ...]
) -> Expr | None:
    data, _, zero = given
    dtype = wanted or ("uint8" if zero is None else str(zero.ty.dtype))
    if dtype not in dtypes or str(data.ty.dtype) != "float32":
        return None
    return _round_to_steps(bb, given, dtype)


def _round_to_steps(bb: BlockBuilder, given: Operands, dtype: str) -> Expr:
    """Return float32 divided by a scale and rounded, plus a zero point, within a dtype."""
    data, scale, zero = given
    steps, bounds = relax.op.round(relax.op.divide(data, scale)), np.iinfo(dtype)
    known_zero = _read_zero_point(zero)
    if known_zero is None:
        steps = relax.op.add(steps, relax.op.astype(zero, "float32"))
        return bb.normalize(relax.op.astype(_clip_values(steps, bounds.min, bounds.max), dtype))
    # Rounded within constants and then made whole, which processors do at once: see `elementary`.
    steps = _clip_values(steps, bounds.min - known_zero, bounds.max - known_zero)
    steps = relax.op.astype(steps, _SUMS)
    if known_zero:
        steps = relax.op.add(steps, relax.const(known_zero, _SUMS))
    return bb.normalize(relax.op.astype(steps, dtype))


def _clip_values(values: Expr, least: int, most: int) -> Expr:
    """Return values within two bounds. No layout gets past `clip`."""
    values = relax.op.maximum(values, _make_single(least))
    return relax.op.minimum(values, _make_single(most))


def _make_single(value: float) -> GenericConst:
    return relax.const(float(value), "float32")


def _read_zero_point(zero: Expr | None) -> int | None:
    """Return a zero point that is one constant, 0 if there is none; None for another."""
    if zero is None:
        return 0
    return int(zero.value.numpy().item()) if _is_one(zero) else None


def _is_one(values: Expr | None) -> TypeGuard[GenericConst]:
    return isinstance(values, GenericConst) and values.value.numpy().size == 1


def _dequantize_tensor(
    bb: BlockBuilder, given: Operands, wanted: str | None, dtypes: tuple[str, ...]
) -> Expr | None:
    data, scale, zero = given
    if str(data.ty.dtype) not in (*dtypes, _SUMS) or wanted not in (None, "float32"):
        return None
    if str(scale.ty.dtype) != "float32":
        return None
    whole = relax.op.astype(data, _SUMS)
    if zero is not None:
        whole = relax.op.subtract(whole, relax.op.astype(zero, _SUMS))
    return bb.normalize(relax.op.multiply(relax.op.astype(whole, "float32"), scale))


def _replace_steps(converter: type[onnx_frontend.OnnxOpConverter], steps: Steps) -> Converter:
    """Return a converter that takes these steps where it can, and is TVM's otherwise."""

    def replaced(original: Convert) -> Convert:
        def convert(bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters) -> Expr:
            if attr.get("block_size"):
                return _convert_blocks(bb, inputs, attr, converter.__name__, steps)
            made = None
            if not attr.get("output_dtype"):
                laid = _align_operands(bb, inputs, int(attr.get("axis", 1)))
                made = steps(bb, laid, None, _BYTES)
            return original(bb, inputs, attr, params) if made is None else made

        return convert

    names = [name for name in vars(converter) if name.startswith("_impl_v")]
    versions = {name: staticmethod(replaced(getattr(converter, name))) for name in names}
    made: Any = type(converter.__name__, (converter,), versions)
    return made


def _align_operands(bb: BlockBuilder, inputs: Inputs, axis: int) -> Operands:
    """Return data, scale and zero point, the latter two laid along the axis they are for."""
    data, scale, zero = inputs[0], inputs[1], find_optional_input(inputs, 2)
    rank = data.ty.ndim

    def laid(values: Expr) -> Expr:
        if values.ty.ndim != 1:
            return values
        one = int(values.ty.shape.values[0]) == 1
        if _is_one(values):
            return operand_facts.make_constant(values.value.numpy().reshape(()))
        shape = [] if one else [-1 if at == axis % rank else 1 for at in range(rank)]
        return bb.normalize(relax.op.reshape(values, shape))

    return data, laid(scale), None if zero is None else laid(zero)


def _convert_blocks(
    bb: BlockBuilder, inputs: Inputs, attr: Attributes, kind: str, steps: Steps
) -> Expr:
    """Convert where a scale is for some elements in a row; raise `ModelError` for other types."""
    wanted = attr.get("output_dtype")
    dtype = (
        to_dtype_name(wanted, f"what {operand_facts.quote_node_name(attr)} returns")
        if wanted
        else None
    )
    made = steps(bb, _spread_blocks(bb, inputs, attr), dtype, _IN_BLOCKS)
    if made is None or attr.get("precision"):
        raise ModelError(
            f"{kind} {operand_facts.quote_node_name(attr)} in blocks of such types is not supported"
        )
    return made


def _spread_blocks(bb: BlockBuilder, inputs: Inputs, attr: Attributes) -> Operands:
    """Return data, scale and zero point, the latter two once for each element of a block."""
    data, scale, zero = inputs[0], inputs[1], find_optional_input(inputs, 2)
    axis, block = int(attr.get("axis", 1)) % data.ty.ndim, int(attr["block_size"])
    what = f"data of {operand_facts.quote_node_name(attr)}"
    size = operand_facts.require_shape(data, what)[axis]

    def repeated(values: Expr) -> Expr:
        sizes = operand_facts.require_shape(values, what)
        if block < 1 or len(sizes) != data.ty.ndim or sizes[axis] != -(-size // block):
            raise ModelError(f"{what} has {size} elements, which are not the blocks of its scale")
        blocks = operand_facts.make_constant(np.arange(size) // block)
        return bb.normalize(relax.op.take(values, blocks, axis))

    return data, repeated(scale), None if zero is None else repeated(zero)


OPERATORS: Final = (
    Operator(
        name="DequantizeLinear",
        since=28,
        converter=_replace_steps(onnx_frontend.DequantizeLinear, _dequantize_tensor),
    ),
    Operator(
        name="DynamicQuantizeLinear",
        since=11,
        converter=DynamicQuantizeLinear,
        traits=Trait.ROUNDS_TO_STEPS,
    ),
    Operator(
        name="QuantizeLinear",
        since=28,
        converter=_replace_steps(onnx_frontend.QuantizeLinear, _quantize_tensor),
        traits=Trait.ROUNDS_TO_STEPS,
    ),
)
