"""Comparisons, logical operators and Where."""

from typing import Final

from tvm import relax
from tvm.ir import Expr, GenericConst

from autopipe.compiler.frontends.onnx.conversion.site import Converter, NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.operator import Operator, SizeRule, Trait


def convert_equal(site: NodeSite) -> Expr:
    """Convert Equal, bool included: TVM compares bool as floats, which LLVM rejects."""
    is_constant = all(isinstance(value, GenericConst) for value in site.inputs)
    if is_constant or str(getattr(site.inputs[0].ty, "dtype", "")) != "bool":
        return site.convert_by_tvm()
    return relax.op.logical_not(site.bb.normalize(relax.op.logical_xor(*site.inputs)))


def _make_comparison(
    name: str, since: int, compute_sizes: SizeRule, converter: Converter | None = None
) -> Operator:
    return Operator(
        name=name, since=since, converter=converter, compute_sizes=compute_sizes,
        size_dtype=lambda _: "bool", traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS,
    )  # fmt: skip


OPERATORS: Final = (
    _make_comparison("Equal", 19, arithmetic.is_equal, convert_equal),
    _make_comparison("Greater", 13, arithmetic.is_greater),
    _make_comparison("GreaterOrEqual", 16, arithmetic.is_greater_or_equal),
    _make_comparison("Less", 13, arithmetic.is_less),
    _make_comparison("LessOrEqual", 16, arithmetic.is_less_or_equal),
    _make_comparison("And", 7, arithmetic.are_both),
    _make_comparison("Or", 7, arithmetic.is_either),
    _make_comparison("Not", 1, arithmetic.negate_truth),
    Operator(name="Xor", since=7, traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS),
    Operator(
        name="Where",
        since=16,
        compute_sizes=arithmetic.select_numbers,
        size_dtype=lambda site: str(site.inputs[1].ty.dtype),
        traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.SELECTS | Trait.EXACT_SPECIALS,
    ),
)
