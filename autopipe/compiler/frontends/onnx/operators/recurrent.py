"""LSTM, GRU and RNN, which TVM has no converters for.

The input projection, which does not depend on the previous step, is one matrix product for all
steps and both directions, with the biases. The steps are one PrimFunc.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Expr, GenericConst

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import BlockBuilder, Size
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import MICROSOFT, Operator, Trait
from autopipe.compiler.frontends.onnx.operators.integer_product import (
    convert_mat_mul_integer,
    make_signed,
)
from autopipe.compiler.frontends.onnx.operators.quantize_linear import quantize_to_range
from autopipe.compiler.frontends.onnx.recurrent.attributes import RecurrentNode
from autopipe.compiler.frontends.onnx.recurrent.notes import FINITE
from autopipe.compiler.recurrence import plain
from autopipe.compiler.recurrence.form import Recurrence
from autopipe.errors import ModelError

_INPUTS: Final = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
_SCALES: Final = ("W_scale", "W_zero_point", "R_scale", "R_zero_point")
"""The further inputs of `DynamicQuantizeLSTM`."""
_BYTES: Final = ("W", "R")
"""Its int8 inputs."""
_BATCH_FIRST: Final = {"X": [1, 0, 2], "initial_h": [1, 0, 2], "initial_c": [1, 0, 2]}
"""Permutations of the inputs from `layout` 1 to `layout` 0."""
_WIDE: Final = {"float32": "float32", "float64": "float64", "float16": "float32"}
"""The compute dtype of a layer by its dtype, if they differ."""


def convert_recurrent(site: NodeSite) -> Expr:
    """Convert LSTM, GRU or RNN."""
    return _Layer(site, site.kind, _name_operands(site, _INPUTS)).convert()


def _name_operands(site: NodeSite, names: Sequence[str]) -> dict[str, Expr]:
    """Return the inputs that the node has, by their names in its definition."""
    pairs = zip(names, list(site.inputs), strict=False)
    return {name: value for name, value in pairs if value is not None}


class _Layer:
    """The conversion of one layer."""

    def __init__(
        self, site: NodeSite, kind: str, operands: Mapping[str, Expr], *, rounded: bool = False
    ) -> None:
        self._site, self._bb = site, site.bb
        self._dtype = str(operands["X"].ty.dtype)
        self._batch_first = bool(site.attr.get("layout", 0))
        self._operands = dict(operands)
        if self._batch_first:
            for name, order in _BATCH_FIRST.items():
                if name in operands:
                    self._operands[name] = self._emit_value(
                        relax.op.permute_dims(operands[name], order)
                    )
        shapes = {
            name: tuple(operand_facts.read_extents(value.ty, f"{kind}: input {name}"))
            for name, value in self._operands.items()
        }
        x = self._operands["X"].ty.shape.values
        self._sizes = x[0], x[1] if len(x) > 1 else x[0]
        self._node = RecurrentNode(kind, site.attr, shapes)
        self._lengths = self._read_lengths(shapes["X"][0] if shapes["X"] else 0)
        self._form = self._node.form(
            lengths=self._lengths is not None,
            finite=bool(site.attr.get(FINITE)),
            dtype=_WIDE.get(self._dtype, self._dtype),
            rounded=rounded,
        )
        as_they_are = {"sequence_lens", *(_BYTES if rounded else ())}
        for name, value in self._operands.items():  # in order, so that imports are deterministic
            if name not in as_they_are:
                self._operands[name] = self._cast_value(value, self._form.dtype)

    def convert(self) -> Expr:
        """Convert the layer and return its outputs."""
        return self._arrange_outputs(self._call_loops(self._form, self._project_input()))

    def _project_input(self) -> Expr:
        """Compute the input projection: [steps, batch, directions * gates * hidden]."""
        product = self._multiply_input(self._take_columns(self._operands["W"]))
        bias = self._combine_biases()
        return product if bias is None else self._emit_value(product + bias)

    def _take_columns(self, weights: Expr) -> Expr:
        """Transpose weights to [terms, directions * gates * hidden]."""
        columns = relax.op.reshape(weights, [self._form.columns, -1])
        return self._emit_value(relax.op.permute_dims(columns, [1, 0]))

    def _multiply_input(self, columns: Expr) -> Expr:
        return self._emit_value(relax.op.matmul(self._operands["X"], columns))

    def _combine_biases(self) -> Expr | None:
        """Return the sum of input and recurrent biases, or None if the layer has none."""
        if "B" not in self._operands:
            return None
        form, half = self._form, self._form.gates * self._form.hidden
        input_bias = self._slice_columns("B", 0, half)
        # with `linear_before_reset`, the bias of the candidate gate is added in each step
        added_columns = half - form.hidden if form.reset_after else half
        state_bias = self._slice_columns("B", half, half + added_columns)
        if added_columns < half:
            none = relax.op.zeros((len(form.directions), half - added_columns), form.dtype)
            state_bias = self._emit_value(relax.op.concat([state_bias, none], 1))
        return self._emit_value(relax.op.reshape(input_bias + state_bias, [form.columns]))

    def _slice_columns(self, name: str, start: int, end: int) -> Expr:
        """Slice columns [start, end) of an input."""
        return self._emit_value(relax.op.strided_slice(self._operands[name], [1], [start], [end]))

    def _list_state_weights(self) -> dict[str, Expr]:
        """Return the recurrent weights and their quantization parameters, by loop input."""
        return {"r": self._emit_value(relax.op.permute_dims(self._operands["R"], [0, 2, 1]))}

    def _call_loops(self, form: Recurrence, products: Expr) -> Expr:
        """Call the PrimFunc of the steps."""
        loop_inputs: dict[str, Expr | None] = {
            "x": products,
            "p": self._operands.get("P"),
            "lengths": self._lengths,
        }
        loop_inputs |= self._list_state_weights()
        for name in form.states:
            loop_inputs[name] = self._operands.get(f"initial_{name}")
        if "bias" in form.inputs and "B" in self._operands:
            size = 2 * form.gates * form.hidden
            loop_inputs["bias"] = self._slice_columns("B", size - form.hidden, size)
        arguments = [
            self._emit_value(relax.op.zeros(self._fill_shape(name, shape), dtype))
            if value is None
            else value
            for name, (shape, dtype) in form.inputs.items()
            for value in (loop_inputs.get(name),)
        ]
        results = [
            relax.TensorType(self._fill_shape(name, shape), form.dtype)
            for name, shape in form.outputs.items()
        ]
        function = self._bb.add_func(plain.build_loops(form), form.kind.lower())
        return self._emit_value(relax.call_tir(function, relax.Tuple(arguments), results))

    def _fill_shape(self, name: str, shape: tuple[int, ...]) -> Sequence[Size]:
        """Return the shape of an input or output of the loops."""
        return plain.fill_shape(name, shape, self._sizes) if self._form.is_open else shape

    def _arrange_outputs(self, results: Expr) -> Expr:
        """Return the outputs in the layout and dtype of the node."""
        outputs = []
        for place in range(len(self._form.outputs)):
            value = self._emit_value(relax.TupleGetItem(results, place))
            if self._batch_first:
                order = [1, 0, 2] if place else [2, 0, 1, 3]
                value = self._emit_value(relax.op.permute_dims(value, order))
            outputs.append(self._cast_value(value, self._dtype))
        return relax.Tuple(outputs)

    def _read_lengths(self, steps: int) -> Expr | None:
        """Return the lengths of the sequences, or None if all have all steps."""
        lengths = self._operands.get("sequence_lens")
        if not isinstance(lengths, GenericConst):
            return lengths
        values = lengths.value.numpy()
        if steps < 0:
            return lengths
        if values.min(initial=0) < 0 or values.max(initial=0) > steps:
            raise ModelError(
                f"{self._node.kind}: sequence_lens is {values.tolist()}, and there are"
                f" {steps} steps"
            )
        return None if (values == steps).all() else lengths

    def _cast_value(self, value: Expr, dtype: str) -> Expr:
        if str(value.ty.dtype) == dtype:
            return value
        return self._emit_value(relax.op.astype(value, dtype))

    def _emit_value(self, value: Expr) -> relax.Var:
        return self._bb.emit(value)


def convert_dynamic_quantize_lstm(site: NodeSite) -> Expr:
    """Convert onnxruntime's LSTM of int8 weights; inputs and states are quantized to uint8."""
    operands = _name_operands(site, (*_INPUTS, *_SCALES))
    weights = {}
    for name in _BYTES:
        scale, zero = operands.pop(f"{name}_scale"), operands.pop(f"{name}_zero_point")
        weights[name] = _read_weights(site.bb, name, operands[name], scale, zero)
        operands[name] = weights[name].values
    return _ByteLayer(site, weights, operands).convert()


@dataclass(frozen=True, slots=True)
class _ByteWeights:
    """Int8 weights."""

    values: Expr
    """[directions, columns, terms], as the weights of an LSTM."""
    scale: Expr
    """[directions, columns]."""
    zero: Expr
    """The same."""


class _ByteLayer(_Layer):
    """The conversion of a layer with int8 products."""

    def __init__(
        self, site: NodeSite, weights: Mapping[str, _ByteWeights], operands: Mapping[str, Expr]
    ) -> None:
        self._weights = weights
        super().__init__(site, "LSTM", operands, rounded=True)

    def _multiply_input(self, columns: Expr) -> Expr:
        weights = self._weights["W"]
        scale, zero = (_lay_out(self._bb, each, [-1]) for each in (weights.scale, weights.zero))
        values, step, point = quantize_to_range(self._bb, self._operands["X"])
        sums = self._site.convert_by(convert_mat_mul_integer, [values, columns, point, zero])
        return self._emit_value(relax.op.astype(sums, self._form.dtype) * (step * scale))

    def _list_state_weights(self) -> dict[str, Expr]:
        weights = self._weights["R"]
        bytes_ = make_signed(self._bb, weights.values, weights.zero)
        zero = bytes_.zero
        if zero is None:
            ways = len(self._form.directions)
            zero = self._emit_value(relax.op.zeros((ways, self._form.columns // ways), "int32"))
        total = relax.op.sum(relax.op.astype(bytes_.values, "int32"), [-1])
        total = self._emit_value(total - zero * relax.const(self._form.hidden, "int32"))
        values = self._emit_value(relax.op.permute_dims(bytes_.values, [0, 2, 1]))
        return {"r": values, "scale": weights.scale, "zero": zero, "total": total}


def _read_weights(
    bb: BlockBuilder, name: str, values: Expr, scale: Expr, zero: Expr
) -> _ByteWeights:
    """Transpose int8 weights [directions, inputs, columns]; scale and zero point are per column."""
    shape = tuple(operand_facts.require_shape(values, f"DynamicQuantizeLSTM: input {name}"))
    for suffix, tensor in (("scale", scale), ("zero_point", zero)):
        sizes = tuple(
            operand_facts.require_shape(tensor, f"DynamicQuantizeLSTM: input {name}_{suffix}")
        )
        if sizes not in {shape[:1], (shape[0], shape[-1])}:
            raise ModelError(
                f"DynamicQuantizeLSTM: input {name}_{suffix} has shape {list(sizes)}, which fits no"
                f" weights of {list(shape)}"
            )
    ways, _, columns = shape
    layouts = [
        _lay_out(bb, _lay_out(bb, tensor, [ways, -1]), [ways, columns], wide=True)
        for tensor in (scale, zero)
    ]
    return _ByteWeights(bb.emit(relax.op.permute_dims(values, [0, 2, 1])), *layouts)


def _lay_out(bb: BlockBuilder, tensor: Expr, shape: list[int], *, wide: bool = False) -> Expr:
    """Reshape a tensor, or broadcast it if `wide`; a constant stays constant."""
    if isinstance(tensor, GenericConst):
        values = tensor.value.numpy()
        values = np.broadcast_to(values, shape) if wide else values.reshape(shape)
        return operand_facts.make_constant(np.ascontiguousarray(values))
    lay = relax.op.broadcast_to if wide else relax.op.reshape
    return bb.emit(lay(tensor, shape))


OPERATORS: Final = (
    Operator(
        name="DynamicQuantizeLSTM",
        domain=MICROSOFT,
        inputs=("X", "W", "R", "", "", "", "", "", *_SCALES),
        converter=convert_dynamic_quantize_lstm,
        traits=Trait.ROUNDS_TO_STEPS,
    ),
    Operator(name="GRU", since=22, converter=convert_recurrent),
    Operator(name="LSTM", since=22, converter=convert_recurrent),
    Operator(name="RNN", since=22, converter=convert_recurrent),
)
