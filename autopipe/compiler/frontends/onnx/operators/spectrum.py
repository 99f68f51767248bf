"""Fourier transforms, their windows and mel weights."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, Self

import numpy as np
from onnx import NodeProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from autopipe.compiler.frontends.onnx.operator import Operator, Shape, Trait
from autopipe.compiler.frontends.onnx.operators.onnx_body import write_onnx_body
from autopipe.compiler.frontends.onnx.reading.tensors import Array, describe_node
from autopipe.compiler.frontends.onnx.reading.value_types import UnknownOperand, check_count
from autopipe.compiler.frontends.onnx.rewriting.body_writer import BodyWriter, write_body
from autopipe.errors import ModelError

_MOST: Final = 2**24
"""Maximum number of elements of a matrix."""
_MOST_MEL: Final = 2**20
_AXIS_IS_AN_INPUT: Final = 20
_UNSTACKED: Final = 2
"""The rank of signals without an axis for real and imaginary parts."""
_TYPES: Final[Mapping[int, str]] = {TensorProto.FLOAT: "float32", TensorProto.FLOAT16: "float16",
                 TensorProto.DOUBLE: "float64"}  # fmt: skip


def _write_dft(body: BodyWriter) -> None:
    """Write DFT as a matrix product over one axis, which is transposed to the end.

    Other axes may be dynamic: zeros among the sizes of a Reshape keep them.
    """
    options, label = body.attributes, describe_node(body.node)
    signal = body.operands[0]
    rank = signal.rank(f"input of {label}")
    axis = options.get("axis", 1)
    if body.opset >= _AXIS_IS_AN_INPUT:
        axis = _read_optional(body, 2, -2, "axis")
    axis %= rank
    samples, parts = (signal.size(at, f"input of {label}") for at in (axis, -1))
    inverse, one_sided = bool(options.get("inverse")), bool(options.get("onesided"))
    usual = 2 * (samples - 1) if inverse and one_sided else samples
    length = _read_optional(body, 1, usual, "length")
    rest = [at for at in range(rank - 1) if at != axis]
    to_last, rows = [*rest, axis, rank - 1], min(samples, length)
    matrix = _make_matrix(body, (rows, parts, length), inverse=inverse, one_sided=one_sided)
    ends = [body.add_ints(number) for number in (0, rows, axis)]
    values = body.add("Slice", [body.name_input(0), *ends])
    values = body.add("Transpose", [values], perm=to_last)
    values = body.add("Reshape", _add_product(body, values, [0 for _ in rest], matrix))
    body.end("Transpose", [values], perm=np.argsort(to_last).tolist())


def _write_stft(body: BodyWriter) -> None:
    """Write STFT as a matrix product of overlapping frames."""
    label = describe_node(body.node)
    batch, samples, *inner_sizes = body.operands[0].shape(f"signal of {label}")
    parts = inner_sizes[0] if inner_sizes else 1
    frame = _Frame.of(body, samples)
    _check_frame(body.node, frame.length, samples)
    frames = (samples - frame.length) // frame.step + 1
    if frames * frame.length * parts > _MOST:
        raise ModelError(f"{label} has {frames} frames of {frame.length} samples: too many")
    signals = body.add("Reshape", [body.name_input(0), body.add_ints(batch, samples, parts)])
    places = np.arange(frames)[:, None] * frame.step + np.arange(frame.length)
    values = body.add("Gather", [signals, body.store("places", places)], axis=1)
    if frame.window:
        window = body.add("Reshape", [frame.window, body.add_ints(frame.length, 1)])
        values = body.add("Mul", [values, window])
    matrix = _make_frame_matrix(body, frame, parts)
    body.end("Reshape", _add_product(body, values, [batch, frames], matrix))


def _write_dynamic_stft(body: BodyWriter) -> None:
    """Write STFT of a dynamic length as a convolution whose stride is the step of the frames."""
    label = f"signal of {describe_node(body.node)}"
    has_parts = body.operands[0].rank(label) > _UNSTACKED
    parts = body.operands[0].size(-1, label) if has_parts else 1
    frame = _Frame.of(body, None)
    matrix = _make_frame_matrix(body, frame, parts)
    columns = matrix.shape[2]
    values = matrix.transpose(2, 3, 1, 0).reshape(columns * 2, parts, frame.length)
    kernel = body.store("kernel", values.astype(_read_dtype(body)))
    if frame.window:
        kernel = body.add("Mul", [kernel, frame.window])
    signal = body.add("Reshape", [body.name_input(0), body.add_ints(0, -1, parts)])
    signal = body.add("Transpose", [signal], perm=[0, 2, 1])
    product = body.add("Conv", [signal, kernel], strides=[frame.step])
    product = body.add("Transpose", [product], perm=[0, 2, 1])
    body.end("Reshape", [product, body.add_ints(0, 0, columns, 2)])


class _Frame(NamedTuple):
    """The frames of an STFT."""

    length: int
    step: int
    window: str
    """The name of the window, empty without one."""

    @classmethod
    def of(cls, body: BodyWriter, samples: int | None) -> Self:
        """Read the frames of a node; raises UnknownOperand if they are computed.

        `samples` is the length of the signal, None for a dynamic one.
        """
        label, window = describe_node(body.node), body.name_input(2)
        length = body.operands[2].size(0, f"window of {label}") if window else samples
        if length is None and not body.name_input(3):
            raise UnknownOperand(f"{label} has one frame, as long as its signal, which is dynamic")
        length = _read_optional(body, 3, length or 0, "frame length")
        step = body.operands[1].number(f"frame step of {label}")
        check_count(step, f"frame step of {label}")
        check_count(length, f"frame length of {label}")
        return cls(length, step, window)


def _make_frame_matrix(body: BodyWriter, frame: _Frame, parts: int) -> Array:
    """Return the DFT matrix of a frame, for the frequencies that the node returns."""
    one_sided = bool(body.attributes.get("onesided", 1))
    sizes = (frame.length, parts, frame.length)
    return _make_matrix(body, sizes, inverse=False, one_sided=one_sided)


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


def _add_product(body: BodyWriter, values: str, outer: list[int], matrix: Array) -> list[str]:
    """Add the product of rows with the matrix of a DFT; returns it and its shape."""
    rows, parts, *columns = matrix.shape
    flat = body.add("Reshape", [values, body.add_ints(*outer, rows * parts)])
    factor = body.store("matrix", matrix.reshape(rows * parts, -1).astype(_read_dtype(body)))
    product = body.add("MatMul", [flat, factor])
    return [product, body.add_ints(*outer, *columns)]


def _read_dtype(body: BodyWriter) -> str:
    kind = body.operands[0].type.tensor_type.elem_type
    if kind not in _TYPES:
        raise ModelError(f"{describe_node(body.node)} of element type {kind} is not supported")
    return _TYPES[kind]


def _write_mel_weights(body: BodyWriter) -> None:
    """Write MelWeightMatrix of constant inputs as a constant; raises UnknownOperand for others."""
    node, values = body.node, [operand.values for operand in body.operands]
    if any(each is None for each in values):
        raise UnknownOperand(f"{describe_node(node)} of inputs that are not constant")
    bins, length = (body.operands[at].number("size") for at in (0, 1))
    if bins < 1 or length < 1 or bins * length > _MOST_MEL:
        raise ModelError(f"{describe_node(node)} of {bins} bins and length {length}")
    try:
        results = ReferenceEvaluator(node).run(None, dict(zip(node.input, values, strict=True)))
        (weights,) = map(np.asarray, results)
    except (IndexError, ValueError, ArithmeticError) as error:
        raise ModelError(f"{describe_node(node)}: {error}") from error
    body.end("Constant", [], value=numpy_helper.from_array(weights))


def _make_matrix(
    body: BodyWriter, sizes: tuple[int, int, int], *, inverse: bool, one_sided: bool
) -> Array:
    """Return the matrix of a DFT: [rows, parts, columns, parts], parts being real and imaginary.

    `sizes` are (input samples or frequencies, parts of each, DFT length).
    """
    (rows, parts, length), label = sizes, describe_node(body.node)
    if length < 1 or parts not in (1, 2):
        raise ModelError(f"{label} of length {length} and {parts} parts")
    columns = length // 2 + 1 if one_sided and not inverse else length
    if rows * parts * columns * 2 > _MOST:
        raise ModelError(
            f"{label} has length {length}; as a product, which is what it "
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


def _read_optional(body: BodyWriter, at: int, default: int, name: str) -> int:
    """Return a constant integer input, or the default if it is absent."""
    operands = body.operands[at:][:1]
    if not operands or not operands[0].type.WhichOneof("value"):
        return default
    return operands[0].number(f"{name} of {describe_node(body.node)}")


OPERATORS: Final = (
    Operator(name="BlackmanWindow", since=17, body=write_onnx_body),
    Operator(
        name="DFT",
        since=20,
        body=partial(write_body, _write_dft),
        counts=MappingProxyType({1: "length"}),
    ),
    Operator(name="HammingWindow", since=17, body=write_onnx_body),
    Operator(name="HannWindow", since=17, body=write_onnx_body),
    Operator(name="MelWeightMatrix", since=17, body=partial(write_body, _write_mel_weights)),
    Operator(
        name="STFT",
        since=17,
        body=partial(write_body, _write_stft),
        dynamic_body=partial(write_body, _write_dynamic_stft),
        check_sizes=_check_signal,
        counts=MappingProxyType({1: "frame step", 3: "frame length"}),
        traits=Trait.NEEDS_DEFAULTS,
    ),
)
