"""Fourier transforms, their windows and mel weights."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

import numpy as np
from onnx import FunctionProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autopipe.compiler.frontends.onnx.operator import Operator, Shape, Trait
from autopipe.compiler.frontends.onnx.operators.onnx_body import write_onnx_body
from autopipe.compiler.frontends.onnx.reading.operand import (
    Operand,
    UnknownOperand,
    check_count,
)
from autopipe.compiler.frontends.onnx.reading.tensors import Array, describe_node, read_attributes
from autopipe.errors import ModelError

_MOST: Final = 2**24
"""Maximum number of elements of a matrix."""
_MOST_MEL: Final = 2**20
_AXIS_IS_AN_INPUT: Final = 20
_UNSTACKED: Final = 2
"""The rank of signals without an axis for real and imaginary parts."""
_STFT_INPUTS: Final = ("x", "_step", "window", "_length")
_TYPES: Final[Mapping[int, str]] = {TensorProto.FLOAT: "float32", TensorProto.FLOAT16: "float16",
                 TensorProto.DOUBLE: "float64"}  # fmt: skip


def _write_dft(node: NodeProto, operands: list[Operand], opset: int) -> FunctionProto:
    """Write DFT as a matrix product over one axis, which is transposed to the end.

    Other axes may be dynamic: zeros among the sizes of a Reshape keep them.
    """
    options, label = read_attributes(node), describe_node(node)
    rank = operands[0].rank(f"input of {label}")
    axis = options.get("axis", 1)
    if opset >= _AXIS_IS_AN_INPUT:
        axis = _read_optional(operands, 2, -2, f"axis of {label}")
    axis %= rank
    samples, parts = (operands[0].size(at, f"input of {label}") for at in (axis, -1))
    inverse, one_sided = bool(options.get("inverse")), bool(options.get("onesided"))
    usual = 2 * (samples - 1) if inverse and one_sided else samples
    length = _read_optional(operands, 1, usual, f"length of {label}")
    rest = [at for at in range(rank - 1) if at != axis]
    to_last = [*rest, axis, rank - 1]
    rows = min(samples, length)
    matrix = _make_matrix(node, (rows, parts, length), inverse=inverse, one_sided=one_sided)
    outer = [0 for _ in rest]
    numbers = {
        "start": [0], "stop": [rows], "axis": [axis],
        "rows": [*outer, rows * parts],
        "matrix": matrix.reshape(rows * parts, -1).astype(_read_dtype(operands[0], node)),
        "columns": [*outer, matrix.shape[2], matrix.shape[-1]],
    }  # fmt: skip
    steps = [
        helper.make_node("Slice", ["x", "start", "stop", "axis"], ["cropped"]),
        helper.make_node("Transpose", ["cropped"], ["turned"], perm=to_last),
        helper.make_node("Reshape", ["turned", "rows"], ["flat"]),
        helper.make_node("MatMul", ["flat", "matrix"], ["product"]),
        helper.make_node("Reshape", ["product", "columns"], ["parts"]),
        helper.make_node("Transpose", ["parts"], ["y"], perm=np.argsort(to_last).tolist()),
    ]
    return _make_function(["x", "_length", "_axis"][: len(node.input)], numbers, steps, opset)


def _write_stft(node: NodeProto, operands: list[Operand], opset: int) -> FunctionProto:
    """Write STFT as a matrix product of overlapping frames."""
    batch, samples, *inner_sizes = operands[0].shape(f"signal of {describe_node(node)}")
    parts = inner_sizes[0] if inner_sizes else 1
    frame = _Frame.of(node, operands, samples)
    _check_frame(node, frame.length, samples)
    length, frames = frame.length, (samples - frame.length) // frame.step + 1
    if frames * length * parts > _MOST:
        raise ModelError(f"{describe_node(node)} has {frames} frames of {length} samples: too many")
    matrix = _make_frame_matrix(node, frame, parts)
    numbers = {
        "signals": [batch, samples, parts],
        "places": np.arange(frames)[:, None] * frame.step + np.arange(length),
        "column": [length, 1],
        "rows": [batch, frames, length * parts],
        "matrix": matrix.reshape(length * parts, -1).astype(_read_dtype(operands[0], node)),
        "columns": [batch, frames, matrix.shape[2], 2],
    }
    steps = [
        helper.make_node("Reshape", ["x", "signals"], ["signal"]),
        helper.make_node("Gather", ["signal", "places"], ["frames"], axis=1),
    ]
    if frame.has_window:
        steps += [
            helper.make_node("Reshape", ["window", "column"], ["weights"]),
            helper.make_node("Mul", ["frames", "weights"], ["windowed"]),
        ]
    steps += [
        helper.make_node(
            "Reshape", ["windowed" if frame.has_window else "frames", "rows"], ["flat"]
        ),
        helper.make_node("MatMul", ["flat", "matrix"], ["product"]),
        helper.make_node("Reshape", ["product", "columns"], ["y"]),
    ]
    return _make_function(_STFT_INPUTS[: len(node.input)], numbers, steps, opset)


def _write_dynamic_stft(node: NodeProto, operands: list[Operand], opset: int) -> FunctionProto:
    """Write STFT of a dynamic length as a convolution whose stride is the step of the frames."""
    label = f"signal of {describe_node(node)}"
    has_parts = operands[0].rank(label) > _UNSTACKED
    parts = operands[0].size(-1, label) if has_parts else 1
    frame = _Frame.of(node, operands, None)
    matrix = _make_frame_matrix(node, frame, parts)
    columns = matrix.shape[2]
    kernel = matrix.transpose(2, 3, 1, 0).reshape(columns * 2, parts, frame.length)
    numbers = {
        "signals": [0, -1, parts],
        "kernel": kernel.astype(_read_dtype(operands[0], node)),
        "columns": [0, 0, columns, 2],
    }
    windowed = "windowed" if frame.has_window else "kernel"
    steps = [
        helper.make_node("Reshape", ["x", "signals"], ["signal"]),
        helper.make_node("Transpose", ["signal"], ["turned"], perm=[0, 2, 1]),
        *([helper.make_node("Mul", ["kernel", "window"], [windowed])] if frame.has_window else []),
        helper.make_node("Conv", ["turned", windowed], ["product"], strides=[frame.step]),
        helper.make_node("Transpose", ["product"], ["flat"], perm=[0, 2, 1]),
        helper.make_node("Reshape", ["flat", "columns"], ["y"]),
    ]
    return _make_function(_STFT_INPUTS[: len(node.input)], numbers, steps, opset)


class _Frame(NamedTuple):
    """The frames of an STFT."""

    length: int
    step: int
    has_window: bool

    @classmethod
    def of(cls, node: NodeProto, operands: list[Operand], samples: int | None) -> Self:
        """Read the frames of a node; raises UnknownOperand if they are computed.

        `samples` is the length of the signal, None for a dynamic one.
        """
        label = describe_node(node)
        has_window = any(node.input[2:3])
        length = operands[2].size(0, f"window of {label}") if has_window else samples
        if length is None and not any(node.input[3:4]):
            raise UnknownOperand(f"{label} has one frame, as long as its signal, which is dynamic")
        length = _read_optional(operands, 3, length or 0, f"frame length of {label}")
        step = operands[1].number(f"frame step of {label}")
        check_count(step, f"frame step of {label}")
        check_count(length, f"frame length of {label}")
        return cls(length, step, has_window)


def _make_frame_matrix(node: NodeProto, frame: _Frame, parts: int) -> Array:
    """Return the DFT matrix of a frame, for the frequencies that the node returns."""
    one_sided = bool(read_attributes(node).get("onesided", 1))
    sizes = (frame.length, parts, frame.length)
    return _make_matrix(node, sizes, inverse=False, one_sided=one_sided)


def _check_signal(
    node: NodeProto, shapes: Mapping[str, Shape], initializers: Mapping[str, TensorProto]
) -> None:
    """Raise ModelError for frames that are longer than their signal: ONNX infers one of them."""
    signal, _, window, length = [*node.input, "", "", ""][:4]
    samples = shapes.get(signal, ())[1:2]
    lengths = shapes.get(window, ())
    if length in initializers:
        lengths = (int(numpy_helper.to_array(initializers[length])),)
    for frame_length, most in zip(lengths, samples, strict=False):
        _check_frame(node, frame_length, most)


def _check_frame(node: NodeProto, length: int, samples: int) -> None:
    if length > samples:
        raise ModelError(f"{describe_node(node)} has frames of {length} over {samples} samples")


def _write_mel_weights(node: NodeProto, operands: list[Operand], opset: int) -> FunctionProto:
    """Write MelWeightMatrix of constant inputs as a constant; raises UnknownOperand for others."""
    values = [operand.values for operand in operands]
    if any(each is None for each in values):
        raise UnknownOperand(f"{describe_node(node)} of inputs that are not constant")
    bins, length = (operands[at].number("size") for at in (0, 1))
    if bins < 1 or length < 1 or bins * length > _MOST_MEL:
        raise ModelError(f"{describe_node(node)} of {bins} bins and length {length}")
    try:
        results = ReferenceEvaluator(node).run(None, dict(zip(node.input, values, strict=True)))
        (weights,) = map(np.asarray, results)
    except (IndexError, ValueError, ArithmeticError) as error:
        raise ModelError(f"{describe_node(node)}: {error}") from error
    steps = [helper.make_node("Constant", [], ["y"], value=numpy_helper.from_array(weights))]
    return _make_function([f"_{at}" for at in range(len(values))], {}, steps, opset)


def _make_matrix(
    node: NodeProto, sizes: tuple[int, int, int], *, inverse: bool, one_sided: bool
) -> Array:
    """Return the matrix of a DFT: [rows, parts, columns, parts], parts being real and imaginary.

    `sizes` are (input samples or frequencies, parts of each, DFT length).
    """
    rows, parts, length = sizes
    if length < 1 or parts not in (1, 2):
        raise ModelError(f"{describe_node(node)} of length {length} and {parts} parts")
    columns = length // 2 + 1 if one_sided and not inverse else length
    if rows * parts * columns * 2 > _MOST:
        raise ModelError(
            f"{describe_node(node)} has length {length}; as a product, which is what it "
            f"becomes, it would have a matrix of more than {_MOST} elements"
        )
    if inverse and one_sided:
        rows_read = min(rows, length // 2 + 1)
        turns = np.outer(np.arange(rows), np.arange(length)) % length * (2 * np.pi / length)
        weight = np.where(2 * np.arange(rows) % length == 0, 1, 2)[:, None] / length
        weight[rows_read:] = 0  # redundant frequencies: conjugates of the others
        real = np.stack([np.cos(turns) * weight, -np.sin(turns) * weight], axis=1)
        return np.asarray(real[:, :parts, :, None])
    turns = np.outer(np.arange(rows), np.arange(columns)) % length * (2 * np.pi / length)
    real, imaginary = np.cos(turns), np.sin(turns) * (1 if inverse else -1)
    matrix = np.stack([np.stack([real, imaginary], -1), np.stack([-imaginary, real], -1)], axis=1)
    return np.asarray(matrix[:, :parts] / (length if inverse else 1))


def _make_function(
    inputs: Sequence[str], numbers: Mapping[str, Any], steps: list[NodeProto], opset: int
) -> FunctionProto:
    constants = [
        helper.make_node(
            "Constant", [], [name], value=numpy_helper.from_array(_make_tensor(values))
        )
        for name, values in numbers.items()
    ]
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_function("", "", inputs, ["y"], [*constants, *steps], opsets)


def _make_tensor(values: Array | Sequence[int]) -> Array:
    return values if isinstance(values, np.ndarray) else np.array(values, np.int64)


def _read_optional(operands: list[Operand], at: int, default: int, label: str) -> int:
    """Return a constant integer input, or the default if it is absent."""
    inputs = operands[at:][:1]
    return inputs[0].number(label) if inputs and inputs[0].type.WhichOneof("value") else default


def _read_dtype(operand: Operand, node: NodeProto) -> str:
    kind = operand.type.tensor_type.elem_type
    if kind not in _TYPES:
        raise ModelError(f"{describe_node(node)} of element type {kind} is not supported")
    return _TYPES[kind]


OPERATORS: Final = (
    Operator(name="BlackmanWindow", since=17, body=write_onnx_body),
    Operator(
        name="DFT",
        since=20,
        body=_write_dft,
        counts=MappingProxyType({1: "length"}),
    ),
    Operator(name="HammingWindow", since=17, body=write_onnx_body),
    Operator(name="HannWindow", since=17, body=write_onnx_body),
    Operator(name="MelWeightMatrix", since=17, body=_write_mel_weights),
    Operator(
        name="STFT",
        since=17,
        body=_write_stft,
        dynamic_body=_write_dynamic_stft,
        check_sizes=_check_signal,
        counts=MappingProxyType({1: "frame step", 3: "frame length"}),
        traits=Trait.NEEDS_DEFAULTS,
    ),
)
