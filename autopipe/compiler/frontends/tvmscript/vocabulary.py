"""The words of TVMScript that a model is written in.

All other words are rejected, even harmless ones: TVM's parser evaluates expressions as Python does,
and through its modules they could reach files, libraries and code generators.
"""

import re
from typing import Final

IMPORTS: Final = {"ir": "I", "relax": "R", "tirx": "T"}
"""Allowed imports from `tvm.script`, each with its required alias."""

BUILTINS: Final = frozenset({"range", "min", "max", "abs", "float", "int"})
"""Names of Python built-ins that TVMScript supports."""

ON_VALUES: Final = frozenset({"astype", "dtype", "shape"})
"""Attributes of buffers and elements."""

_STRUCTURE: Final = frozenset({
    "Buffer", "axis.S", "axis.R", "axis.reduce", "axis.remap", "axis.spatial", "func_attr", "grid",
    "init", "parallel", "prim_func", "reads", "sblock", "sblock_alloc_buffer", "sblock_attr",
    "serial", "unroll", "vectorized", "where", "writes",
})  # fmt: skip
_SCALARS: Final = frozenset({
    "Cast", "Select", "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh",
    "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "bool", "boolean", "cast", "ceil",
    "ceildiv", "clz", "copysign", "cos", "cosh", "erf", "exp", "exp10", "exp2", "fabs", "floor",
    "floordiv", "floormod", "fma", "fmod", "hypot", "if_then_else", "infinity", "isfinite", "isinf",
    "isnan", "ldexp", "likely", "log", "log10", "log1p", "log2", "max", "max_value", "min",
    "min_value", "nearbyint", "nextafter", "popcount", "pow", "reinterpret", "round", "rsqrt",
    "shift_left", "shift_right", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
    "truncdiv", "truncmod",
})  # fmt: skip
T_WORDS: Final = _STRUCTURE | _SCALARS
"""Words of `T` without the names of element types."""

_NUMBER: Final = re.compile(r"(float|int|uint)(8|16|32|64)")

_RELAX: Final = frozenset({
    "Shape", "Tensor", "Tuple", "call_tir", "const", "dataflow", "dtype", "func_attr", "function",
    "output", "prim_value", "shape", "tuple",
})  # fmt: skip
_OPERATORS: Final = tuple(
    f"tvm.relax.op.{family}"
    for family in (
        "binary", "create", "datatype", "image.image", "index", "linear_algebra", "manipulate",
        "nn.nn", "qdq", "search", "sorting", "statistical", "ternary", "unary",
    )
)  # fmt: skip
"""The modules of Relax with operators on tensors."""


def is_known_word(root: str, word: str) -> bool:
    """Whether `root.word` is allowed in a model, such as `T.axis.remap` or `R.nn.relu`."""
    if root == "I":
        return word == "ir_module"
    if root == "T":
        return word in T_WORDS or is_number(word)
    return word in _RELAX or is_operator(word)


def is_known_op(op: str) -> bool:
    """Whether an operator of TVM has a word in this vocabulary."""
    dialect, _, word = op.partition(".")
    if dialect in {"prim", "tirx"}:
        return word in _SCALARS
    return dialect == "relax" and (word == "call_tir" or is_operator(word))


def is_number(word: str) -> bool:
    """Whether `T.word` is a scalar type, so that a call of it creates a constant."""
    return bool(_NUMBER.fullmatch(word))


def is_scalar(word: str) -> bool:
    """Whether `T.word` computes a number from numbers."""
    return word in _SCALARS


def is_operator(word: str) -> bool:
    """Whether `R.word` computes tensors from tensors."""
    from tvm.script import relax

    family, _, name = word.rpartition(".")
    if family not in {"", "nn", "image"}:
        return False
    scope = getattr(relax, family) if family else relax
    return getattr(getattr(scope, name, None), "__module__", None) in _OPERATORS
