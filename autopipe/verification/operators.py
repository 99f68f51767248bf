"""What the operators of an ONNX model say of its outputs: how fine they are, what is promised.

A sigmoid is rounded as a number up to 1, however small it is: onnxruntime's is off by 1.4 units in
the last place of 1, its tanh by 2.3, and below -15.8 its sigmoid is 0. A quantized output moves
in steps.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autopipe.verification.reference import MODEL

_UNITS = 4.0
"""Roundings of 1 that two right programs may differ by where a function saturates."""
_STEPS = 2.0
"""Steps that a quantized output may differ by: one rounding more, one less."""

_SLOPES = {"Sigmoid": 0.25, "Tanh": 1.0, "Softmax": 1.0, "Erf": 1.13, "Softsign": 1.0}
"""Functions that saturate at 0, 1 or -1, and how much a change of what they are given shows."""
_MOVES = {
    "AveragePool", "Clip", "Flatten", "Gather", "GlobalAveragePool", "GlobalMaxPool", "Identity",
    "MaxPool", "Neg", "Pad", "ReduceMax", "ReduceMean", "ReduceMin", "Relu", "Reshape", "Resize",
    "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Expand",
}  # fmt: skip
"""What makes no difference of its first operand larger."""
_EITHER = {"Concat", "Max", "Min", "Where"}
"""What takes elements of one operand or another, and makes no difference of any larger."""

_QUANTIZES = ("DynamicQuantize", "QAttention", "QGemm", "QLinear", "QuantizeLinear")
"""How the names of operators begin that round to steps."""

_HALVES, _FLOATS = {10, 16}, {1, 11}
"""ONNX's numbers of float16 and bfloat16, and of float32 and float64."""

_SUMS = {"Add", "Identity", "Neg", "Sub", "Sum"}
"""Operators whose results are sums of their operands."""

_CHOOSES = {"Compress", "NonMaxSuppression", "NonZero", "TopK", "Unique"}
"""Operators that choose elements by their values, or order them."""

EXACT_SPECIALS = _MOVES - {"AveragePool", "GlobalAveragePool", "ReduceMean", "Resize"} | {
    "Abs", "Add", "And", "Cast", "Ceil", "Concat", "Constant", "Div", "Equal", "Floor", "Greater",
    "GreaterOrEqual", "HardSigmoid", "IsInf", "IsNaN", "Less", "LessOrEqual", "Max", "Min", "Mod",
    "Mul", "Not", "Or", "Reciprocal", "Round", "Sign", "Sqrt", "Sub", "Sum", "ThresholdedRelu",
    "Where", "Xor",
}  # fmt: skip
"""Operators that are promised to take infinities and NaN as the reference does, whatever
`numerics`."""

_NEAR_ZERO = {"Acosh", "Atanh", "Log", "LogSoftmax", "Pow", "ReduceLogSum", "ReduceLogSumExp"}
"""Operators that make much of a number near zero, or have no answer below it."""

NAN_LOST = {"GlobalMaxPool", "MaxPool", "ReduceMax", "ReduceMin"}
"""Operators that propagate NaN here and in NumPy; onnxruntime loses some, and `onnx` in MaxPool."""

COMPARE = NAN_LOST | {"Clip", "Max", "Min", "Relu"}
"""Operators that propagate NaN on processors alone: GPUs return the other operand."""


NAN = "nan"
"""The special case with NaN."""

USUAL = {"tiny", "signed"}
"""The special cases that nearly all operators have an answer to."""


class Operators:
    """The operators of the model that was imported."""

    def __init__(self, model: Path, device: str = "cpu") -> None:
        """Read the graph in an artifact of *import*; of a model that is not ONNX none is known.

        `device` is where the build runs.
        """
        self._folder, self._device = model, device
        self.kinds: frozenset[str] = frozenset()
        """Names of all operators, those of inner graphs too."""
        self._makers: dict[str, Any] = {}
        self._stored: dict[str, Any] = {}
        source = model / MODEL
        if not source.exists():
            return
        import onnx

        from autopipe.compiler.frontends.onnx.tensors import graphs

        graph = onnx.load(source, load_external_data=False).graph
        self._makers = {name: node for node in graph.node for name in node.output}
        self._stored = {tensor.name: tensor for tensor in graph.initializer}
        self.kinds = frozenset(self._kind(node) for inner in graphs(graph) for node in inner.node)

    def _kind(self, node: Any) -> str:  # noqa: ANN401  protobuf
        """Return the operator of a node; a cast is told apart where two right programs may part.

        An infinity is no integer, and 16-bit floats are computed in float32: a sum of them that
        overflows may be cast to float32 before it does.
        """
        if node.op_type != "Cast":
            return str(node.op_type)
        to = next((each.i for each in node.attribute if each.name == "to"), 0)
        maker = self._makers.get(node.input[0])
        is_exact = to in _HALVES or (to in _FLOATS and (maker is None or maker.op_type == "Cast"))
        return "Cast" if is_exact else "Cast of results"

    @property
    def choose(self) -> bool:
        """Whether the model chooses rows, so that two right programs may choose others."""
        return not _CHOOSES.isdisjoint(self.kinds)

    @property
    def round(self) -> bool:
        """Whether there are steps inside, at which two right programs may part."""
        return any(kind.startswith(_QUANTIZES) for kind in self.kinds)

    def promised(self, case: str, *, finite: bool) -> bool:
        """Tell whether a build has to do what the reference does on that case of `specials`.

        `finite` says whether the reference is, everywhere.
        """
        if case in USUAL:
            if finite and not self.kinds & _NEAR_ZERO:
                return True
        elif any(map(self._cancels, self._makers.values())):
            return False
        exact = (
            EXACT_SPECIALS - COMPARE if case == NAN and self._device != "cpu" else EXACT_SPECIALS
        )
        return bool(self.kinds) and self.kinds <= exact

    @property
    def propagate(self) -> bool:
        """Whether references may lose NaN that a build has to propagate."""
        return not NAN_LOST.isdisjoint(self.kinds) and self.promised(NAN, finite=False)

    def _cancels(self, node: Any) -> bool:  # noqa: ANN401  protobuf
        """Tell whether a node subtracts what is part of its operands, as `x - (x + 1)` does.

        ONNX defines no order of roundings, and -1 is a right answer at every number: TVM gives it
        at an infinity, too, of which onnxruntime makes what is not a number.
        """
        if node.op_type != "Sub":
            return False
        left, right = (self._terms(name) for name in node.input)
        return not left.isdisjoint(right)

    def _terms(self, name: str) -> set[str]:
        """Return the computed values that a value is a sum of, itself among them."""
        found, waiting = set[str](), [name]
        while waiting:
            term = waiting.pop()
            if term in found or term in self._stored:
                continue
            found.add(term)
            node = self._makers.get(term)
            if node is not None and node.op_type in _SUMS:
                waiting += node.input
        return found

    def floor(self, output: str, dtype: np.dtype) -> float:
        """Return the absolute difference below which values of an output tell nothing."""
        if dtype.kind != "f":
            return 0.0
        known: dict[str, float] = {}
        unit = float(np.finfo(dtype).eps) * _UNITS
        for name in self._order(output):
            known[name] = self._own(name, unit, known)
        return known.get(output, 0.0)

    def _order(self, output: str) -> list[str]:
        """Return what an output is made of, operands before results, as far as that matters."""
        found: dict[str, None] = {}
        waiting = [(output, False)]
        while waiting:
            name, done = waiting.pop()
            node = self._makers.get(name)
            if node is None or name in found:
                continue
            if done:
                found[name] = None
            else:
                waiting.append((name, True))
                waiting += [(each, False) for each in _followed(node)]
        return list(found)

    def _own(self, name: str, unit: float, known: Mapping[str, float]) -> float:
        node = self._makers[name]
        kind, given = node.op_type, [known.get(each, 0.0) for each in node.input]
        if kind == "DequantizeLinear":
            scale = self._largest(node.input[1])
            return _STEPS * scale if math.isfinite(scale) else 0.0
        if kind in _SLOPES:
            return unit + _SLOPES[kind] * given[0]
        if kind == "Mul":
            left, right = (self._largest(each) for each in node.input)
            return given[0] * right + given[1] * left
        if kind in {"Add", "Sub", "Sum"}:
            return sum(given)
        return max(given, default=0.0) if kind in _MOVES | _EITHER else 0.0

    def _largest(self, name: str) -> float:
        """Return the largest magnitude in a constant, 0 if it is none."""
        from onnx import numpy_helper

        tensor = self._stored.get(name)
        maker = self._makers.get(name)
        if tensor is None and maker is not None and maker.op_type == "Constant":
            tensor = next((each.t for each in maker.attribute if each.name == "value"), None)
        if tensor is None:
            return 0.0
        values = np.abs(numpy_helper.to_array(tensor, str(self._folder)).astype(np.float64))
        return float(values.max(initial=0.0))


def _followed(node: Any) -> list[str]:  # noqa: ANN401  protobuf
    if node.op_type in {"Add", "Mul", "Sub", "Sum"} | _EITHER:
        return list(node.input)
    return list(node.input[:1]) if node.op_type in _MOVES | _SLOPES.keys() else []
