"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear."""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeGuard

import numpy as np
from tvm import relax
from tvm.ir import Expr, GenericConst

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.compiler.frontends.onnx.reading.tensors import to_dtype_name
from autopipe.errors import ModelError

_BYTES: Final = ("uint8", "int8")
_SUMS: Final = "int32"
_IMAGES: Final = (4, 5)
"""Ranks of images and volumes."""
Operands = tuple[Expr, Expr, Expr | None]
"""Data, scale and zero point."""

Steps = Callable[[BlockBuilder, Operands, str | None, tuple[str, ...]], Expr | None]
"""Converts (block builder; data, scale and zero point; requested dtype; supported dtypes). None
leaves other dtypes to TVM's converter."""


_IN_BLOCKS: Final = (*_BYTES, "uint16", "int16")
"""Dtypes of blocked quantization, exact in float32; without blocks TVM's converter is used."""


def convert_dynamic_quantize_linear(site: NodeSite) -> Expr:
    """Convert DynamicQuantizeLinear: quantization by the range of the data, which may be empty."""
    return relax.Tuple(quantize_to_range(site.bb, site.inputs[0]))


def quantize_to_range(bb: BlockBuilder, data: Expr) -> tuple[Expr, Expr, Expr]:
    """Quantize data to uint8 by their range; returns (data, scale, zero point)."""
    origin, step_count, unit_scale = map(_make_single, (0.0, 255.0, 1.0))
    high = relax.op.maximum(origin, _reduce_to_extreme(bb, relax.op.max, data))
    low = relax.op.minimum(origin, _reduce_to_extreme(bb, relax.op.min, data))
    span = bb.normalize(relax.op.subtract(high, low))
    empty = relax.op.equal(span, origin)
    scale = relax.op.where(empty, unit_scale, relax.op.divide(span, step_count))
    scale = bb.normalize(scale)
    zero = relax.op.divide(relax.op.negative(low), scale)
    zero = relax.op.round(relax.op.clip(zero, 0, 255))
    zero = bb.normalize(relax.op.astype(zero, "uint8"))
    return _round_to_steps(bb, (data, scale, zero), "uint8"), scale, zero


def _reduce_to_extreme(bb: BlockBuilder, op: Callable[..., Expr], data: Expr) -> Expr:
    """Reduce to a scalar, the innermost axis last: until then, reductions are vectorized."""
    rank = data.ty.ndim
    last = 1 if rank in _IMAGES else rank - 1  # the channels, innermost in CPU layouts
    outer = [axis for axis in range(rank) if axis != last]
    rows = bb.normalize(op(data, outer)) if outer else data
    return bb.normalize(op(rows))


def _quantize_tensor(
    bb: BlockBuilder, operands: Operands, output_dtype: str | None, dtypes: tuple[str, ...]
) -> Expr | None:
    data, _, zero = operands
    dtype = output_dtype or ("uint8" if zero is None else str(zero.ty.dtype))
    if dtype not in dtypes or str(data.ty.dtype) != "float32":
        return None
    return _round_to_steps(bb, operands, dtype)


def _round_to_steps(bb: BlockBuilder, operands: Operands, dtype: str) -> Expr:
    """Quantize float32: divide by the scale, round, add the zero point, saturate to a dtype."""
    data, scale, zero = operands
    steps, bounds = relax.op.round(relax.op.divide(data, scale)), np.iinfo(dtype)
    known_zero = _read_zero_point(zero)
    if known_zero is None:
        steps = relax.op.add(steps, relax.op.astype(zero, "float32"))
        return bb.normalize(relax.op.astype(_clip_values(steps, bounds.min, bounds.max), dtype))
    # Round and clip by constants, then convert: one instruction each, see `elementary`.
    steps = _clip_values(steps, bounds.min - known_zero, bounds.max - known_zero)
    steps = relax.op.astype(steps, _SUMS)
    if known_zero:
        steps = relax.op.add(steps, relax.const(known_zero, _SUMS))
    return bb.normalize(relax.op.astype(steps, dtype))


def _clip_values(values: Expr, least: int, most: int) -> Expr:
    """Clip values by minimum and maximum: layout transformations do not pass `clip`."""
    values = relax.op.maximum(values, _make_single(least))
    return relax.op.minimum(values, _make_single(most))


def _make_single(value: float) -> GenericConst:
    return relax.const(float(value), "float32")


def _read_zero_point(zero: Expr | None) -> int | None:
    """Return a constant scalar zero point, 0 if it is absent; None for others."""
    if zero is None:
        return 0
    return int(zero.value.numpy().item()) if _is_one(zero) else None


def _is_one(values: Expr | None) -> TypeGuard[GenericConst]:
    return isinstance(values, GenericConst) and values.value.numpy().size == 1


def _dequantize_tensor(
    bb: BlockBuilder, operands: Operands, output_dtype: str | None, dtypes: tuple[str, ...]
) -> Expr | None:
    data, scale, zero = operands
    if str(data.ty.dtype) not in (*dtypes, _SUMS) or output_dtype not in (None, "float32"):
        return None
    if str(scale.ty.dtype) != "float32":
        return None
    integers = relax.op.astype(data, _SUMS)
    if zero is not None:
        integers = relax.op.subtract(integers, relax.op.astype(zero, _SUMS))
    return bb.normalize(relax.op.multiply(relax.op.astype(integers, "float32"), scale))


def _convert_by_steps(steps: Steps, site: NodeSite) -> Expr:
    """Convert a node by these steps, or else by TVM's converter."""
    if site.attr.get("block_size"):
        return _convert_blocks(site, steps)
    result = None
    if not site.attr.get("output_dtype"):
        result = steps(site.bb, _align_operands(site), None, _BYTES)
    return site.convert_by_tvm() if result is None else result


def _align_operands(site: NodeSite) -> Operands:
    """Return data, scale and zero point, the latter two reshaped to broadcast along their axis."""
    data, scale, zero = site.inputs[0], site.inputs[1], site.find_input(2)
    rank, axis = data.ty.ndim, int(site.attr.get("axis", 1))

    def align(values: Expr) -> Expr:
        if values.ty.ndim != 1:
            return values
        is_single = int(values.ty.shape.values[0]) == 1
        if _is_one(values):
            return operand_facts.make_constant(values.value.numpy().reshape(()))
        shape = [] if is_single else [-1 if at == axis % rank else 1 for at in range(rank)]
        return site.bb.normalize(relax.op.reshape(values, shape))

    return data, align(scale), None if zero is None else align(zero)


def _convert_blocks(site: NodeSite, steps: Steps) -> Expr:
    """Convert blocked quantization; raises `ModelError` for unsupported dtypes."""
    output_type = site.attr.get("output_dtype")
    dtype = to_dtype_name(output_type, f"what {site.name!r} returns") if output_type else None
    result = steps(site.bb, _spread_blocks(site), dtype, _IN_BLOCKS)
    if result is None or site.attr.get("precision"):
        raise ModelError(f"{site.label} in blocks of such types is not supported")
    return result


def _spread_blocks(site: NodeSite) -> Operands:
    """Return data, scale and zero point, the latter two repeated for each element of a block."""
    data, scale, zero = site.inputs[0], site.inputs[1], site.find_input(2)
    axis, block = int(site.attr.get("axis", 1)) % data.ty.ndim, int(site.attr["block_size"])
    label = f"data of {site.name!r}"
    size = operand_facts.require_shape(data, label)[axis]

    def repeat(values: Expr) -> Expr:
        sizes = operand_facts.require_shape(values, label)
        if block < 1 or len(sizes) != data.ty.ndim or sizes[axis] != -(-size // block):
            raise ModelError(f"{label} has {size} elements, which are not the blocks of its scale")
        blocks = operand_facts.make_constant(np.arange(size) // block)
        return site.bb.normalize(relax.op.take(values, blocks, axis))

    return data, repeat(scale), None if zero is None else repeat(zero)


OPERATORS: Final = (
    Operator(
        name="DequantizeLinear",
        since=28,
        converter=partial(_convert_by_steps, _dequantize_tensor),
    ),
    Operator(
        name="DynamicQuantizeLinear",
        since=11,
        converter=convert_dynamic_quantize_linear,
        traits=Trait.ROUNDS_TO_STEPS,
    ),
    Operator(
        name="QuantizeLinear",
        since=28,
        converter=partial(_convert_by_steps, _quantize_tensor),
        traits=Trait.ROUNDS_TO_STEPS,
    ),
)
