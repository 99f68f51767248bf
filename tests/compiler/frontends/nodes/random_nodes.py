"""Seeded random ONNX nodes: attributes, opsets, dtypes, ranks and numbers near the limits."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

FLOATS: Final = ("float32", "float32", "float16", "float64")
SIGNED: Final = ("int8", "int16", "int32", "int64")
UNSIGNED: Final = ("uint8", "uint16", "uint32", "uint64")
INTEGERS: Final = (*SIGNED, *UNSIGNED)
WIDE: Final = ("int32", "int64", "uint32", "uint64")
NUMBERS: Final = (*FLOATS, *INTEGERS)
ANY: Final = (*NUMBERS, "bool")
LARGEST: Final = np.iinfo(np.int64).max
SMALLEST: Final = np.iinfo(np.int64).min

Array = np.ndarray[Any, Any]


@dataclass
class Node:
    """A node, its arrays, and the opset that it is of."""

    op: str
    opset: int
    inputs: dict[str, Array]
    """What is given when the model runs, by name."""
    constants: dict[str, Array] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    """Names in the order of the node's inputs, "" for one that is left out."""
    outputs: int = 1
    domain: str = ""

    @property
    def names(self) -> list[str]:
        """The node's inputs."""
        return list(self.order or (*self.inputs, *self.constants))


class Draw:
    """A source of random choices."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._numbers = np.random.default_rng(seed)

    def pick(self, *choices: Any) -> Any:
        """Return one of the choices."""
        return self._random.choice(choices)

    def flip(self, chance: float = 0.5) -> bool:
        """Return True with a probability."""
        return self._random.random() < chance

    def number(self, least: int, most: int) -> int:
        """Return a number, both ends included."""
        return self._random.randint(least, most)

    def order(self, count: int) -> list[int]:
        """Return a permutation."""
        return self._random.sample(range(count), count)

    def shape(self, least: int = 0, most: int = 4, size: int = 5) -> list[int]:
        """Return a shape of some rank."""
        return [self.number(1, size) for _ in range(self.number(least, most))]

    def axis(self, rank: int) -> int:
        """Return an axis, perhaps counted from the end."""
        return self.number(-rank, rank - 1)

    def axes(self, rank: int, least: int = 0) -> list[int]:
        """Return different axes in any order, some counted from the end."""
        chosen = self.order(rank)[: self.number(min(least, rank), rank)]
        return [axis - rank if self.flip(0.3) else axis for axis in chosen]

    def array(self, shape: list[int], dtype: str, scale: float = 3.0) -> Array:
        """Return plain numbers of a dtype."""
        kind = np.dtype(dtype)
        if kind.kind == "b":
            return np.asarray(self._numbers.random(shape) < 0.5)
        if kind.kind == "f":
            return np.asarray(scale * self._numbers.standard_normal(shape), kind)
        low = 0 if kind.kind == "u" else -9
        return np.asarray(self._numbers.integers(low, 10, shape), kind)

    def extreme(self, shape: list[int], dtype: str) -> Array:
        """Return numbers of which some are near the limits of a dtype."""
        kind = np.dtype(dtype)
        array = np.array(self.array(shape, dtype))
        if kind.kind == "b":
            return array
        if kind.kind == "f":
            limits = np.finfo(kind)
            log = math.log(float(limits.max))
            special = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, math.inf, -math.inf]
            special += [limits.max, limits.min, limits.tiny, math.sqrt(float(limits.max)) * 1.1]
            special += [sign * log * part for sign in (1, -1) for part in (1, 1.004, 0.996, 1.18)]
        else:
            ends = np.iinfo(kind)
            special = [0, 1, ends.min, ends.max, ends.min + 1, ends.max - 1]
        for place in range(array.size):
            if self.flip(0.4):
                array.reshape(-1)[place] = np.asarray(self.pick(*special)).astype(kind)
        return array

    def ints(self, *values: int) -> Array:
        """Return a list of int64."""
        return np.array(values, np.int64)


Generator = Callable[[Draw, str], Node]


def single(dtypes: tuple[str, ...], opsets: tuple[int, ...], **ranges: Any) -> Generator:
    """Return what draws a node of one input, with attributes from lists or between two floats."""

    def generate(draw: Draw, op: str) -> Node:
        data = draw.extreme(draw.shape(), draw.pick(*dtypes))
        return Node(op, draw.pick(*opsets), {"x": data}, attributes=chosen(draw, ranges))

    return generate


def chosen(draw: Draw, ranges: Mapping[str, Any]) -> dict[str, Any]:
    """Return some of the attributes: each from its list."""
    return {name: draw.pick(*values) for name, values in ranges.items() if draw.flip(0.6)}


def broadcast(draw: Draw) -> list[list[int]]:
    """Return two shapes that fit each other."""
    whole = draw.shape()
    shapes = []
    for _ in range(2):
        kept = whole[draw.number(0, len(whole)) if draw.flip(0.4) else 0 :]
        shapes.append([1 if draw.flip(0.2) else size for size in kept])
    return shapes


def pair(dtypes: tuple[str, ...], opsets: tuple[int, ...], **ranges: Any) -> Generator:
    """Return what draws a node of two inputs, one of which may be a constant."""

    def generate(draw: Draw, op: str) -> Node:
        dtype = draw.pick(*dtypes)
        first, second = (draw.extreme(shape, dtype) for shape in broadcast(draw))
        if op in {"Div", "Mod"} and second.dtype.kind in "iu":
            second = np.where(second == 0, np.asarray(1, second.dtype), second)
            first = np.where(first == np.iinfo(first.dtype).min, 3, first).astype(first.dtype)
        attributes = chosen(draw, ranges)
        if op == "Mod" and first.dtype.kind == "f":
            attributes = {"fmod": 1}
        elif op == "Mod":
            attributes = {"fmod": draw.pick(0, 1)}
        if op == "PRelu":  # its slope is broadcast to the data, never the data
            first = np.broadcast_to(first, np.broadcast_shapes(first.shape, second.shape)).copy()
        stored = {"z": second} if draw.flip(0.3) else {}
        given = {"x": first} if stored else {"x": first, "z": second}
        return Node(op, draw.pick(*opsets), given, stored, attributes)

    return generate


def power(draw: Draw, op: str) -> Node:
    """Pow of two dtypes; negative powers of integers are not defined."""
    dtype = draw.pick("float32", "float64", "int32", "int64")
    first, second = broadcast(draw)
    base = draw.array(first, dtype)
    exponent = draw.array(second, draw.pick("float32", "int32", "int64"))
    if dtype.startswith("int"):
        exponent = np.minimum(np.abs(exponent), 5).astype(exponent.dtype)
    else:
        exponent = np.rint(exponent).astype(exponent.dtype)
    stored = {"z": exponent} if draw.flip() else {}
    return Node(
        op, draw.pick(12, 13, 15), {"x": base} | ({} if stored else {"z": exponent}), stored
    )


def many(draw: Draw, op: str) -> Node:
    """An operator of any number of inputs."""
    dtype = draw.pick(*(FLOATS if op in {"Sum", "Mean"} else ("float32", "float64", *WIDE)))
    shapes = [shape for _ in range(2) for shape in [*broadcast(draw)][:1]]
    whole = draw.shape()
    shapes = [
        [1 if draw.flip(0.2) else size for size in whole[draw.number(0, len(whole)) :]]
        for _ in range(draw.number(1, 4))
    ]
    inputs = {f"x{at}": draw.extreme(shape, dtype) for at, shape in enumerate(shapes)}
    return Node(op, draw.pick(13, 8) if op in {"Sum", "Mean"} else draw.pick(12, 13), inputs)


def clip(draw: Draw, op: str) -> Node:
    """Clip with none, one or both bounds, as attributes or as inputs."""
    opset = draw.pick(6, 11, 12, 13)
    if opset == 6:
        data = draw.extreme(draw.shape(), "float32")
        return Node(op, 10, {"x": data}, attributes=chosen(draw, {"min": [-1.5], "max": [2.0]}))
    dtype = draw.pick("float32") if opset == 11 else draw.pick("float32", "float64", *WIDE, "int8")
    bounds = {name: draw.array([], dtype) for name in ("low", "high") if draw.flip(0.6)}
    order = tuple(name if name in bounds else "" for name in ("low", "high"))
    order = ("x", *order) if "high" in bounds else ("x", *filter(None, order))
    given = draw.flip(0.3)
    inputs = {"x": draw.extreme(draw.shape(), dtype)}
    return Node(op, opset, inputs | (bounds if given else {}), {} if given else bounds, order=order)


def reduction(draw: Draw, op: str) -> Node:
    """A reduction: axes as an attribute or as an input, none of them, or of nothing."""
    as_input = 13 if op == "ReduceSum" else 18
    opset = draw.pick(11, 12, 13, 18)
    dtypes: tuple[str, ...] = ("float32", "float32", "float64", *WIDE)
    if op in {"ReduceMax", "ReduceMin"} and opset >= 12:
        dtypes = (*dtypes, "int8", "uint8")
    if op in {"ReduceLogSum", "ReduceLogSumExp"}:
        dtypes = ("float32", "float64")
    if op in {"ReduceMax", "ReduceMin"} and draw.flip(0.2):
        opset, dtypes = 20, ("bool",)
    shape = draw.shape()
    data = draw.array(shape, draw.pick(*dtypes))
    # references divide in floats, wrap sums of means and saturate those of squares
    inexact = op == "ReduceMean" and (data.dtype.itemsize == 8 or data.dtype.kind == "u")
    inexact = inexact or op in {"ReduceL2", "ReduceProd", "ReduceSumSquare"}
    if data.dtype.kind != "f" and not inexact and draw.flip(0.3):
        data = draw.extreme(shape, str(data.dtype))
    if op == "ReduceLogSum":
        data = np.abs(data) + np.asarray(0.5, data.dtype)
    axes, attributes = draw.axes(len(shape)), chosen(draw, {"keepdims": [0, 1]})
    if opset < as_input:
        return Node(
            op, opset, {"x": data}, attributes=attributes | ({"axes": axes} if axes else {})
        )
    attributes |= chosen(draw, {"noop_with_empty_axes": [0, 1]})
    stored = {"axes": draw.ints(*axes)} if axes or draw.flip() else {}
    return Node(op, opset, {"x": data}, stored, attributes)


def argument(draw: Draw, op: str) -> Node:
    """ArgMax and ArgMin, ties among them."""
    shape = draw.shape(1)
    data = draw.array(shape, draw.pick("float32", "float64", "int32", "int64", "int8", "uint8"))
    data = np.rint(data).astype(data.dtype)
    names = {"keepdims": [0, 1], "axis": [draw.axis(len(shape))]}
    opset = draw.pick(11, 12, 13)
    if opset >= 12:
        names["select_last_index"] = [0, 1]
    return Node(op, opset, {"x": data}, attributes=chosen(draw, names))


def cast(draw: Draw, op: str) -> Node:
    """Cast between any two dtypes; a float that no integer is near is left out of account."""
    before, after = draw.pick(*ANY), draw.pick(*ANY)
    data = draw.extreme(draw.shape(), before)
    from onnx import helper

    if np.dtype(before).kind == "f" and np.dtype(after).kind in "iu":
        low, high = (-100, 100) if np.dtype(after).kind == "i" else (0, 200)
        data = np.clip(draw.array(list(data.shape), before, 60.0), low, high)
    to = helper.np_dtype_to_tensor_dtype(np.dtype(after))
    return Node(op, draw.pick(9, 13, 19, 21), {"x": data}, attributes={"to": to})


_FLOAT_OPS: Final = (
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor",
    "Log", "Reciprocal", "Round", "Sigmoid", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt",
    "Tan", "Tanh",
)  # fmt: skip
_ALPHA: Final = [0.0, 0.1, 1.0, 2.5, -0.5]

GENERATORS: Final[dict[str, Generator]] = {
    **{op: single(("float32", "float32", "float64"), (13, 17)) for op in _FLOAT_OPS},
    **{op: single((*FLOATS, *SIGNED), (13, 14)) for op in ("Abs", "Neg", "Sign")},
    "Relu": single((*FLOATS, *SIGNED), (14,)),
    **{op: single(("float32", "float64"), (13, 16), alpha=_ALPHA) for op in ("Elu", "LeakyRelu")},
    "Selu": single(("float32",), (13,), alpha=_ALPHA, gamma=[1.0, 1.1, 0.3]),
    "Celu": single(("float32",), (13,), alpha=[0.5, 1.0, 2.0]),
    "ThresholdedRelu": single(("float32",), (13,), alpha=_ALPHA),
    "HardSigmoid": single(("float32",), (13,), alpha=_ALPHA, beta=_ALPHA),
    "HardSwish": single(("float32",), (14,)),
    "Gelu": single(("float32",), (20,), approximate=["none", "tanh"]),
    "Mish": single(("float32",), (18,)),
    "Shrink": single(("float32", "int32"), (13,), bias=[0.0, 1.5], lambd=[0.5, 1.0]),
    "IsInf": single(("float32", "float64"), (13,), detect_negative=[0, 1], detect_positive=[0, 1]),
    "IsNaN": single(("float32", "float64"), (13,)),
    "BitwiseNot": single(INTEGERS, (18,)),
    "Not": single(("bool",), (13,)),
    "Identity": single(ANY, (13, 16)),
    **{op: pair(NUMBERS, (14,)) for op in ("Add", "Sub", "Mul", "Div")},
    "Mod": pair(("float32", "float64", *INTEGERS), (13,)),
    "Pow": power,
    **dict.fromkeys(("Sum", "Mean", "Max", "Min"), many),
    **{op: pair(NUMBERS, (13, 9)) for op in ("Greater", "Less")},
    **{op: pair(NUMBERS, (12, 16)) for op in ("GreaterOrEqual", "LessOrEqual")},
    "Equal": pair(ANY, (11, 13, 19)),
    **{op: pair(("bool",), (7, 13)) for op in ("And", "Or", "Xor")},
    **{op: pair(INTEGERS, (18,)) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    "BitShift": pair(UNSIGNED, (11, 13), direction=["LEFT", "RIGHT"]),
    "PRelu": pair(("float32", "float64", "int32", "int64", "uint32"), (16,)),
    "Clip": clip,
    "Cast": cast,
    **{
        f"Reduce{op}": reduction
        for op in (
            "L1",
            "L2",
            "LogSum",
            "LogSumExp",
            "Max",
            "Mean",
            "Min",
            "Prod",
            "Sum",
            "SumSquare",
        )
    },
    **dict.fromkeys(("ArgMax", "ArgMin"), argument),
}
"""What draws a node of each operator."""
