"""Elementwise arithmetic, unary and binary with broadcasting."""

from typing import Final

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

OPERATORS: Final = (
    Operator(
        name="Abs", since=13, traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.EXACT_SPECIALS
    ),
    Operator(
        name="Add",
        since=14,
        compute_sizes=arithmetic.add_numbers,
        weights={0: "shift", 1: "shift"},
        moments=rules.total,
        traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.ADDS | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Mul",
        since=14,
        compute_sizes=arithmetic.multiply_numbers,
        weights={0: "scale", 1: "scale"},
        moments=rules.product,
        traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Neg",
        since=13,
        compute_sizes=arithmetic.negate_numbers,
        traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.KEEPS_ERROR | Trait.EXACT_SPECIALS,
    ),
    Operator(name="Reciprocal", since=13, traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS),
    Operator(
        name="Sqrt", since=13, moments=rules.rooted, traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS
    ),
    Operator(
        name="Sub",
        since=14,
        compute_sizes=arithmetic.subtract_numbers,
        weights={1: "shift"},
        moments=rules.difference,
        traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.ADDS | Trait.EXACT_SPECIALS,
    ),
)
