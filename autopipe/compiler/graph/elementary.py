"""Expand elementary functions to arithmetic, which LLVM can vectorize.

For TVM's own intrinsics LLVM calls libm, once per element. PrimFuncs are marked when the graph is
lowered, and the marked ones are expanded before code generation. In between, schedules and records
see TVM's intrinsics. The coefficients are our own minimax fits.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr

from autopipe.compiler.arithmetic import libm
from autopipe.compiler.find_nodes import find_nodes
from autopipe.compiler.graph import angles, circular, exponentials, hyperbolic, round_to_integers
from autopipe.compiler.graph.arithmetic import (
    INFINITY_BITS,
    SINGLE,
    build_let,
    count_inlined_nodes,
    evaluate_polynomial,
    make_float32,
    take_magnitude_bits,
)  # fmt: skip
from autopipe.compiler.graph.powers import expand_power, expand_rsqrt
from autopipe.compiler.target.target import backend_of

_MARK: Final = "autopipe.arithmetic_functions"
"""Attribute of PrimFuncs that permits the expansion of elementary functions."""

_NARROW: Final = frozenset({"float16", "bfloat16"})
"""Dtypes computed in float32; float64 is left to libm."""

_SINGLE_ONLY: Final = frozenset({"tirx.cosh", "tirx.sinh", *libm.FUNCTIONS})
"""Calls that TVM 0.27 cannot vectorize: it has no LLVM intrinsic for them, or a wrong one."""

TANH: Final = (
    (1.0, 0.13379718363285065, 0.0034940349869430065, 2.0583489458658732e-05,
     1.3319082725615772e-08),
    (1.0, 0.4671303331851959, 0.025871075689792633, 0.0003283093683421612,
     7.762023983559629e-07),
)  # fmt: skip
"""Numerator and denominator of tanh(x) / x in x^2, to 2e-8 where tanh(x) is not 1."""

TANH_END: Final = 9.0163
"""From here on tanh is 1: numerator and denominator are equal, with and without FMA."""

_ERF: Final = (
    (1.1283791065216064, 0.19059480726718903, 0.05276944488286972, 0.003772597061470151,
     0.00028484492213465273, 2.0460233827179763e-06),
    (1.0, 0.5022429823875427, 0.11418315768241882, 0.014983291737735271,
     0.0011638697469606996, 3.804780499194749e-05),
)  # fmt: skip
"""The same of erf(x) / x."""

_ERF_END: Final = 3.925
"""From here on erf is 1."""

_HALF: Final = 0.5
"""The mantissa of powers of two, by which LLVM multiplies exactly."""


def mark_inexact(module: tvm.IRModule) -> tvm.IRModule:
    """Mark each PrimFunc of a module that may round differently.

    These are functions that `expand_functions` changes, and those that divide by a constant, such
    as the 6 of a hard swish (`compiler/codegen/multiply_by_reciprocals.py`).
    """
    return _map_functions(module, lambda f: f.with_attr(_MARK, True) if _is_inexact(f) else f)  # noqa: FBT003 - TVM's signature


def _is_inexact(function: tirx.PrimFunc) -> bool:
    divisors: list[tirx.FloatImm] = []

    def counted(division: tirx.Div) -> None:
        under = division.b
        if str(under.ty) != SINGLE or not isinstance(under, tirx.FloatImm):
            return
        if abs(math.frexp(under.value)[0]) != _HALF:
            divisors.append(under)

    tvm_ffi.structural_walk(function.body, (tirx.Div, counted))
    if divisors or circular.has_circular_calls(function):
        return True
    return not _expand_function(function).same_as(function)


def expand_for_target(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """Expand elementary functions unless the target, such as a GPU, has instructions for them."""
    return expand_functions(module) if backend_of(target).expands_elementary_functions else module


def expand_functions(module: tvm.IRModule) -> tvm.IRModule:
    """Expand the elementary functions of marked PrimFuncs to arithmetic.

    Loops with calls that TVM's LLVM backend supports for scalars only are not vectorized. A call of
    `isnan` in any PrimFunc becomes a comparison of bits, which can be vectorized.
    """

    def changed(function: tirx.PrimFunc) -> tirx.PrimFunc:
        function = _expand_function(function) if is_marked(function) else function
        return _unvectorize_calls(tvm_ffi.structural_map(function, (Call, _expand_isnan)))

    return _map_functions(module, changed)


def is_marked(function: tirx.PrimFunc) -> bool:
    """Tell whether the elementary functions of a PrimFunc may be expanded."""
    return _MARK in (function.attrs or {})


def expand_expression(value: Expr) -> Expr:
    """Expand the elementary functions of an expression to arithmetic that fills whole vectors.

    TVM lowers a vectorized loop with a call of `isnan` to a scalar loop, and LLVM then uses vectors
    of half the size. So this compares bits instead.
    """
    return tvm_ffi.structural_map(_expand_calls(value), (Call, _expand_isnan))


def _map_functions(
    module: tvm.IRModule, change: Callable[[tirx.PrimFunc], tirx.PrimFunc]
) -> tvm.IRModule:
    functions = {
        var: change(function) if isinstance(function, tirx.PrimFunc) else function
        for var, function in module.functions_items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _expand_function(function: tirx.PrimFunc) -> tirx.PrimFunc:
    function = circular.expand_circular(function)
    return _expand_calls(
        tvm_ffi.structural_map(function, (tirx.Cast, round_to_integers.expand_rounding))
    )


_Part = TypeVar("_Part", tirx.PrimFunc, Expr)
"""A function, or an expression."""


def _expand_calls(part: _Part) -> _Part:
    """Expand the calls of elementary functions in a function or expression."""
    sums = tvm_ffi.structural_map(part, (Call, exponentials.expand_log_of_sum))
    expanded_part: _Part = tvm_ffi.structural_map(sums, (Call, _expand_call))
    return expanded_part


def _unvectorize_calls(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Make vectorized loops with calls that are for scalars only serial."""

    def plain(loop: tirx.For) -> tirx.For:
        if loop.kind != tirx.ForKind.VECTORIZED or not _is_single(loop):
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    return tvm_ffi.structural_map(function, (tirx.For, plain)) if _is_single(function) else function


def _is_single(part: tirx.PrimFunc | tirx.For) -> bool:
    calls = find_nodes(part.body, Call)
    return any(getattr(call.op, "name", "") in _SINGLE_ONLY for call in calls)


def _expand_call(call: Call) -> Expr:
    """Expand a call of an elementary function to arithmetic; keep any other call."""
    name = getattr(call.op, "name", "")
    if name == "tirx.pow":
        return expand_power(call)
    compute = _FUNCTIONS.get(name)
    dtype = str(call.ty) if compute else ""
    if compute is None or dtype not in _NARROW | {SINGLE}:
        return call
    result = build_let(call.args[0].astype(SINGLE), compute)
    if count_inlined_nodes(result, {}) > (_MOST if name in _CLOSE else _MOST_WIDE):
        return call
    return result if dtype == SINGLE else result.astype(dtype)


def _expand_isnan(call: Call) -> Expr:
    """Replace a call of `isnan` by a comparison of bits; keep any other call.

    A comparison of the number with itself would not do: TVM folds it.
    """
    if getattr(call.op, "name", "") != "tirx.isnan" or str(call.args[0].ty) != SINGLE:
        return call
    return take_magnitude_bits(call.args[0]) > INFINITY_BITS


def _compute_sigmoid(x: Expr) -> Expr:
    """Compute 1 / (1 + e^-x) to 3 ulp. A result below 2e-39 becomes 0."""
    return make_float32(1.0) / (make_float32(1.0) + build_let(-x, exponentials.compute_flushed_exp))


def _compute_tanh(x: Expr) -> Expr:
    """Compute tanh(x) to 7 ulp."""
    return _evaluate_odd_ratio(x, TANH, TANH_END)


def _compute_erf(x: Expr) -> Expr:
    """Compute erf(x) to 7 ulp."""
    return _evaluate_odd_ratio(x, _ERF, _ERF_END)


def _evaluate_odd_ratio(
    x: Expr, ratio: tuple[Sequence[float], Sequence[float]], end: float
) -> Expr:
    """Compute an odd function with limit 1: x * p(x^2) / q(x^2) up to `end`, then 1."""
    over, under = ratio
    value = build_let(
        x * x,
        lambda square: x * evaluate_polynomial(square, over) / evaluate_polynomial(square, under),
    )
    # NaN passes through: a minimum and a maximum take their second operand then
    value = tirx.max(make_float32(-1.0), tirx.min(make_float32(1.0), value))
    value = tirx.Select(x > make_float32(end), make_float32(1.0), value)
    return tirx.Select(x < make_float32(-end), make_float32(-1.0), value)


def _round_to_nearest(x: Expr) -> Expr:
    """Round to the nearest integer, ties to even.

    TVM does not vectorize its own intrinsic for it, but vectorizes LLVM's.
    """
    return tirx.call_llvm_pure_intrin(SINGLE, "llvm.nearbyint", x)


_CLOSE: Final = frozenset({"tirx.exp", "tirx.log", "tirx.sigmoid", "tirx.tanh", "tirx.erf"})
"""Functions that models nest, as a Mish does."""

_MOST: Final = 600_000
_MOST_WIDE: Final = 100_000
"""Inlined nodes of nested functions from which the outer one stays a call of libm, for those above
and for the others. TVM's code generator simplifies each bound variable with all earlier ones
inlined: an asinh of an atan of a tanh would take 97 s."""

_FUNCTIONS: Final = {
    "tirx.exp": exponentials.compute_exp,
    "tirx.log": exponentials.compute_log,
    "tirx.sigmoid": _compute_sigmoid,
    "tirx.tanh": _compute_tanh,
    "tirx.erf": _compute_erf,
    "tirx.nearbyint": _round_to_nearest,
    "tirx.rsqrt": expand_rsqrt,
    "tirx.sinh": hyperbolic.compute_sinh,
    "tirx.cosh": hyperbolic.compute_cosh,
    "tirx.asinh": hyperbolic.compute_asinh,
    "tirx.acosh": hyperbolic.compute_acosh,
    "tirx.atanh": hyperbolic.compute_atanh,
    "tirx.asin": angles.compute_asin,
    "tirx.acos": angles.compute_acos,
    "tirx.atan": angles.compute_atan,
}
"""By the name of the intrinsic."""

IN_VECTORS: Final = frozenset({*_FUNCTIONS, "tirx.pow", "tirx.sqrt"})
"""Functions that are vectorized: expanded to arithmetic, as most powers, or an instruction."""
