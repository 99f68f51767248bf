"""Rewrite products of quantized tensors as integer operators.

A statically quantized model multiplies the floats of DequantizeLinear, or has QLinearConv and
QLinearMatMul. Either is the int8 product times both scales, divided by the scale of the result if
that is quantized: one rounding, as in onnxruntime.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper

from autopipe.compiler.frontends.onnx.reading.tensors import Array, read_attributes
from autopipe.compiler.frontends.onnx.rewriting import requantize_integers
from autopipe.compiler.frontends.onnx.rewriting.quantization_graph import BYTES, QuantizedGraph

_EXPANDED = frozenset({"QLinearConv", "QLinearMatMul"})
"""Operators that are expanded into floats first."""
REWRITTEN = _EXPANDED | {"DequantizeLinear"}
"""Operators that are rewritten: a graph without any of them is unchanged."""

_INTEGER = {"Conv": "ConvInteger", "MatMul": "MatMulInteger", "Gemm": "MatMulInteger"}

_WITH_BIAS = 3
"""Number of operands of a product with bias."""
_EXACT = 1e-5
"""Relative tolerance between the scales of bias and sums: a few roundings."""


@dataclass(frozen=True, slots=True)
class _Operand:
    """An int8 or uint8 operand with its quantization parameters."""

    values: str
    zero: str
    """Name of the zero point, empty if it is 0."""
    scale: Array
    """A scalar, or one element for each slice along `axis`."""
    axis: int


@dataclass(frozen=True, slots=True)
class _Product:
    """The int8 product that replaces a float product."""

    node: NodeProto
    left: _Operand
    right: _Operand
    columns: tuple[int, ...]
    """Shape that broadcasts one number per column or output channel over the result."""
    bias: Array | None
    """Int32 bias of the sums."""
    addend: Array | None
    """Float32 bias of the product."""


def fuse_quantized(graph: GraphProto) -> None:
    """Replace products of dequantized int8 by int8 products, if scales are constant."""
    view = QuantizedGraph(graph)
    floats = {}
    for node in graph.node:
        if node.op_type in _EXPANDED:
            floats[node.output[0]] = list(_expand_product(view, node))
    view.replace_results(floats)
    requantize_integers.move_bytes(graph)
    view = QuantizedGraph(graph)
    products = [p for node in graph.node if (p := _find_product(view, node)) is not None]
    view.replace_results({p.node.output[0]: list(_emit_integers(view, p)) for p in products})


def _expand_product(graph: QuantizedGraph, node: NodeProto) -> Iterator[NodeProto]:
    """Expand QLinearConv or QLinearMatMul into dequantized operands, product and quantization."""
    output, kind = node.output[0], node.op_type.removeprefix("QLinear")
    operands = [list(node.input[:3]), list(node.input[3:6])]
    axes = (1, 0) if kind == "Conv" else (-2, -1)
    for names, axis, part in zip(operands, axes, "ab", strict=True):
        names[1] = yield from _cast_scale(graph, names[1], f"{output}/{part} scale")
        yield helper.make_node("DequantizeLinear", names, [f"{output}/{part}"], axis=axis)
    inputs = [f"{output}/a", f"{output}/b"]
    if bias := [name for name in node.input[8:] if name]:
        scale, factors = f"{output}/bias scale", [names[1] for names in operands]
        scales = [graph.find_constant(name) for name in factors]
        if scales[0] is not None and scales[1] is not None:
            graph.store_as(scale, scales[0] * scales[1])
        else:
            yield helper.make_node("Mul", factors, [scale])
        yield helper.make_node("DequantizeLinear", [*bias, scale], [f"{output}/bias"], axis=0)
        inputs.append(f"{output}/bias")
    product = helper.make_node(kind, inputs, [f"{output}/product"])
    product.attribute.extend(node.attribute)
    yield product
    step = yield from _cast_scale(graph, node.input[6], f"{output}/step")
    names = [f"{output}/product", step, node.input[7]]
    yield helper.make_node("QuantizeLinear", names, [output], name=output)


def _cast_scale(graph: QuantizedGraph, name: str, new_name: str) -> Generator[NodeProto, None, str]:
    """Cast a scale to float32, the dtype of products, and return its name."""
    values = graph.find_constant(name)
    if values is not None and values.dtype == np.float32:
        return name
    if values is not None:
        return graph.store_as(new_name, values.astype(np.float32))
    yield helper.make_node("Cast", [name], [new_name], to=TensorProto.FLOAT)
    return new_name


def _find_product(graph: QuantizedGraph, node: NodeProto) -> _Product | None:
    """Return the quantized operands of a product, None if it has others."""
    if node.op_type not in _INTEGER or not _is_plain(node):
        return None
    left, right = (_find_operand(graph, name) for name in node.input[:2])
    if left is None or right is None or left.scale.size != 1:
        return None
    weights = graph.find_constant(right.values)
    rank = 0 if weights is None else weights.ndim
    if not _has_column_scales(node, right, rank) or (node.op_type == "Conv" and not rank):
        return None
    addends = _find_addend(graph, node, left.scale * right.scale)
    columns = (-1, *[1] * (rank - 2)) if node.op_type == "Conv" else (-1,)
    return addends and _Product(node, left, right, columns, *addends)


def _is_plain(node: NodeProto) -> bool:
    """Whether the node is a product without alpha, beta or transA."""
    values = read_attributes(node)
    is_scaled = values.get("alpha", 1.0) != 1.0 or values.get("beta", 1.0) != 1.0
    return not is_scaled and not values.get("transA", 0)


def _find_operand(graph: QuantizedGraph, name: str) -> _Operand | None:
    """Return the int8 operand that a value is dequantized from, if its scale is constant."""
    node = graph.find_producer(name, "DequantizeLinear")
    if node is None or read_attributes(node).get("block_size"):
        return None
    values, scale, zero = [*node.input, ""][:3]
    factors, points, constant_values = map(graph.find_constant, (scale, zero, values))
    typed_values = points if points is not None else constant_values
    if (
        factors is None
        or factors.dtype != np.float32
        or typed_values is None
        or str(typed_values.dtype) not in BYTES
    ):
        return None
    has_no_zero = points is None or not points.any()
    return _Operand(
        values, "" if has_no_zero else zero, factors, read_attributes(node).get("axis", 1)
    )


def _has_column_scales(node: NodeProto, right: _Operand, rank: int) -> bool:
    """Whether there is one scale, or one for each column or output channel."""
    if right.scale.size == 1:
        return True
    first = node.op_type == "Conv" or bool(read_attributes(node).get("transB", 0))
    return bool(rank) and right.axis % rank == (0 if first else rank - 1)


def _find_addend(
    graph: QuantizedGraph, node: NodeProto, scale: Array
) -> tuple[Array | None, Array | None] | None:
    """Return the third operand as (int32 bias, float32 addend), None if it is computed."""
    if len(node.input) < _WITH_BIAS or not node.input[2]:
        return None, None
    floats = graph.find_constant(node.input[2])
    if floats is not None:
        return None, floats
    producer = graph.find_producer(node.input[2], "DequantizeLinear")
    values, factors = (
        map(graph.find_constant, producer.input[:2]) if producer is not None else (None, None)
    )
    if values is None or factors is None or values.dtype != np.int32:
        return None
    exact = np.allclose(factors, scale.reshape(-1), rtol=_EXACT, atol=0)
    return (values, None) if exact else (None, values.astype(np.float32) * factors)


def _emit_integers(graph: QuantizedGraph, product: _Product) -> Iterator[NodeProto]:
    """Yield the integer operators and the conversion of their result to float32."""
    output, left, right = product.node.output[0], product.left, product.right
    weights = right.values
    if read_attributes(product.node).get("transB", 0):
        weights = f"{output}/b"
        yield _make_node("Transpose", [right.values], weights, perm=[1, 0])
    operator = _make_node(_INTEGER[product.node.op_type], [left.values, weights], f"{output}/sums")
    operator.input.extend([left.zero, right.zero] if right.zero else [left.zero])
    if product.node.op_type == "Conv":
        operator.attribute.extend(product.node.attribute)
    yield operator
    sums = f"{output}/sums"
    if product.bias is not None:
        bias = graph.store_as(f"{output}/bias", _lay_along(product.bias, product.columns))
        yield _make_node("Add", [sums, bias], f"{output}/biased")
        sums = f"{output}/biased"
    yield _make_node("Cast", [sums], f"{output}/real", to=TensorProto.FLOAT)
    factor = graph.store_as(
        f"{output}/scale", _lay_along(_find_scale(graph, product), product.columns)
    )
    product_name = output if product.addend is None else f"{output}/scaled"
    yield _make_node("Mul", [f"{output}/real", factor], product_name)
    if product.addend is not None:
        addend = graph.store_as(f"{output}/addend", _lay_along(product.addend, product.columns))
        yield _make_node("Add", [product_name, addend], output)


def _find_scale(graph: QuantizedGraph, product: _Product) -> Array:
    """Return the factor of the int32 sums, divided by the scale of a following quantization.

    That quantization then gets a scale of 1.
    """
    scale = product.left.scale * product.right.scale
    name = product.node.output[0]
    reader = graph.find_only_reader(name)
    if reader is not None and reader.op_type == "Relu":
        reader = graph.find_only_reader(reader.output[0])
    if reader is None or reader.op_type != "QuantizeLinear" or product.addend is not None:
        return scale
    step = graph.find_constant(reader.input[1])
    if step is None or step.size != 1:
        return scale
    reader.input[1] = graph.store_as(f"{name}/one", np.ones((), np.float32))
    return scale / step


def _lay_along(values: Array, columns: tuple[int, ...]) -> Array:
    """Reshape a scalar or one number per column to broadcast over the result."""
    if values.size == 1:
        return values.reshape(())
    return values if len(columns) == 1 else values.reshape(columns)


def _make_node(kind: str, inputs: list[str], output: str, **attributes: Any) -> NodeProto:  # noqa: ANN401 - each of its own type
    return helper.make_node(kind, inputs, [output], name=output, **attributes)
