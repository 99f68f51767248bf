"""Operators on truth values."""

from typing import Final

from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

OPERATORS: Final = (
    Operator(
        name="And",
        since=7,
        converter=onnx_frontend.And,
        compute_sizes=arithmetic.are_both,
        size_dtype=arithmetic.truth_dtype,
        traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Not",
        since=1,
        converter=onnx_frontend.Not,
        compute_sizes=arithmetic.negate_truth,
        size_dtype=arithmetic.truth_dtype,
        traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Or",
        since=7,
        converter=onnx_frontend.Or,
        compute_sizes=arithmetic.is_either,
        size_dtype=arithmetic.truth_dtype,
        traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Xor",
        since=7,
        converter=onnx_frontend.Xor,
        traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS,
    ),
)
