"""Elementary functions as arithmetic, since LLVM can turn arithmetic into vector instructions.

For TVM's own intrinsics LLVM calls libm, once for each element. PrimFuncs are marked when the graph
is lowered, and the marked ones are expanded when machine code is made. In between, schedules and
records see TVM's intrinsics. The range reductions follow Cody and Waite, "Software Manual for the
Elementary Functions" (1980). The coefficients are minimax fits of our own.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr

from autopipe.compiler.graph import whole
from autopipe.compiler.graph.arithmetic import ROUND, SINGLE, horner, let, single
from autopipe.compiler.graph.powers import inverse_root, power
from autopipe.compiler.target.target import backend_of

_MARK: Final = "autopipe.arithmetic_functions"
"""Attribute of PrimFuncs whose elementary functions may be computed here."""

_NARROW: Final = frozenset({"float16", "bfloat16"})
"""Computed in single precision; wider ones are left to libm."""

_SINGLE_ONLY: Final = frozenset({"tirx.cosh", "tirx.sinh"})
"""Calls of which TVM 0.27 makes no vectors: it finds no such intrinsic of LLVM."""

LN2: Final = (0.693359375, -2.1219444005469057e-4)
"""The logarithm of 2: few bits, so that multiples of it are exact, and the rest."""

EXP: Final = (
    0.4999999403953552, 0.1666652113199234, 0.04166838899254799, 0.008368716575205326,
    0.001381459878757596,
)  # fmt: skip
"""(e^r - 1 - r) / r^2 for |r| <= ln(2) / 2, to 3e-9."""

_EXP_RANGE: Final = (-87.5, 89.0)
"""At its ends e^x becomes denormal and infinite."""

_EXP_ZERO: Final = -104.0
"""Below it e^x is 0."""

_LIFT: Final = 40.0
"""What is added to x where e^x is denormal, and taken back by a factor. The sum is exact."""

_LOG: Final = (
    0.3333333134651184, -0.2500081956386566, 0.20001226663589478, -0.16623356938362122,
    0.14201758801937103, -0.13160182535648346, 0.12761574983596802, -0.07634492963552475,
)  # fmt: skip
"""(ln(1 + z) - z + z^2 / 2) / z^3 for 1 + z between the roots of 1/2 and 2, to 6e-9."""

TANH: Final = (
    (1.0, 0.13379718363285065, 0.0034940349869430065, 2.0583489458658732e-05,
     1.3319082725615772e-08),
    (1.0, 0.4671303331851959, 0.025871075689792633, 0.0003283093683421612,
     7.762023983559629e-07),
)  # fmt: skip
"""Numerator and denominator of tanh(x) / x in x^2, to 2e-8 where tanh(x) is not 1."""

TANH_END: Final = 9.02
"""From here on tanh is 1."""

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
"""The fraction of powers of two, which LLVM makes exact products of."""

_WHOLE: Final = 2.0**23
"""From here on numbers have no fraction."""

_BIAS: Final = 127
_FRACTION_BITS: Final = 23
_ROOT_HALF: Final = 0x3F3504F3
"""The bits of sqrt(1/2) in single precision."""
_ALL_BUT_SIGN: Final = 0x7FFFFFFF
_INFINITY: Final = 0x7F800000
"""The bits of it."""
_DENORMAL: Final = 2.0**-126
"""The smallest number that has all its bits."""


def mark(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module, with a mark on each PrimFunc that may round differently.

    `expand` shall change it, or it divides by a number, such as the 6 of a hard swish, which
    `compiler/reciprocals.py` makes a product of.
    """
    return _mapped(module, lambda f: f.with_attr(_MARK, True) if _may_differ(f) else f)  # noqa: FBT003 - TVM's signature


def _may_differ(function: tirx.PrimFunc) -> bool:
    divisors: list[tirx.FloatImm] = []

    def counted(division: tirx.Div) -> None:
        under = division.b
        if str(under.ty) != SINGLE or not isinstance(under, tirx.FloatImm):
            return
        if abs(math.frexp(under.value)[0]) != _HALF:
            divisors.append(under)

    tvm_ffi.structural_walk(function.body, (tirx.Div, counted))
    return bool(divisors) or not _expanded(function).same_as(function)


def compilable(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """Return the module as its target wants it; GPUs have instructions for elementary functions."""
    return expand(module) if backend_of(target).processor else module


def expand(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module with the elementary functions of marked PrimFuncs as arithmetic.

    What TVM's LLVM backend has for single numbers only, it gets no vectors of.
    """
    return _mapped(module, lambda f: _one_by_one(_expanded(f) if marked(f) else f))


def marked(function: tirx.PrimFunc) -> bool:
    """Tell whether elementary functions of a PrimFunc may be computed here."""
    return _MARK in (function.attrs or {})


def inline(value: Expr) -> Expr:
    """Return an expression with its elementary functions as arithmetic that fills whole vectors.

    Where a vectorized loop holds a call of `isnan`, TVM makes a loop over single numbers of it, and
    LLVM then uses vectors of half the size. So this compares bits instead.
    """
    arithmetic = tvm_ffi.structural_map(value, (Call, _arithmetic))
    return tvm_ffi.structural_map(arithmetic, (Call, _bits_compared))


def exp_below(x: Expr) -> Expr:
    """e^x, to 1.5 ulp, where x is at most 0; a result below 2e-38 is 0."""
    return let(tirx.max(single(_EXP_RANGE[0]), x), _in_range)


def _in_range(x: Expr) -> Expr:
    """e^x, where x is in the range: 2^(n - 1) * 2e^r, n as the last bits of a large number.

    2^128, which e^88.5 is made of, is no number. 2^127 is one, as its half for n = 128.
    """
    large = ROUND + _BIAS - 1

    def scaled(shifted: Expr) -> Expr:
        n = shifted - single(large)
        fraction = let(n, lambda n: x - n * single(LN2[0]) - n * single(LN2[1]))
        series = let(fraction, lambda r: horner(r, [2 * one for one in (1.0, 1.0, *EXP)]))
        # the large number's own bits are gone when its last ones are the exponent
        power = tirx.reinterpret("int32", shifted) << _FRACTION_BITS
        return series * tirx.reinterpret(SINGLE, power)

    return let(x * single(1.4426950408889634) + single(large), scaled)


def _mapped(module: tvm.IRModule, change: Callable[[tirx.PrimFunc], tirx.PrimFunc]) -> tvm.IRModule:
    functions = {
        var: change(function) if isinstance(function, tirx.PrimFunc) else function
        for var, function in module.functions_items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _expanded(function: tirx.PrimFunc) -> tirx.PrimFunc:
    function = tvm_ffi.structural_map(function, (tirx.Cast, whole.rounded))
    return tvm_ffi.structural_map(function, (Call, _arithmetic))


def _one_by_one(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function whose vectors hold no call that is for single numbers only."""

    def plain(loop: tirx.For) -> tirx.For:
        if loop.kind != tirx.ForKind.VECTORIZED or not _is_single(loop):
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    return tvm_ffi.structural_map(function, (tirx.For, plain)) if _is_single(function) else function


def _is_single(part: tirx.PrimFunc | tirx.For) -> bool:
    calls: list[Call] = []
    tvm_ffi.structural_walk(part.body, (Call, calls.append))
    return any(getattr(call.op, "name", "") in _SINGLE_ONLY for call in calls)


def _arithmetic(call: Call) -> Expr:
    """Return a call of an elementary function as arithmetic; any other call as it is."""
    name = getattr(call.op, "name", "")
    if name == "tirx.pow":
        return power(call)
    compute = _FUNCTIONS.get(name)
    dtype = str(call.ty) if compute else ""
    if compute is None or dtype not in _NARROW | {SINGLE}:
        return call
    result = let(call.args[0].astype(SINGLE), compute)
    return result if dtype == SINGLE else result.astype(dtype)


def _bits_compared(call: Call) -> Expr:
    """Return a comparison of bits for a call of `isnan`; any other call as it is.

    A number that is compared with itself would not do: TVM takes that for known.
    """
    if getattr(call.op, "name", "") != "tirx.isnan" or str(call.args[0].ty) != SINGLE:
        return call
    bits = tirx.reinterpret("int32", call.args[0])
    return (bits & _ALL_BUT_SIGN) > _INFINITY


def _exp(x: Expr) -> Expr:
    """e^x, to 1.5 ulp; denormal results too, of which a logarithm may be taken."""
    low = single(_EXP_RANGE[0])

    def of(y: Expr) -> Expr:
        near = let(tirx.Select(y < low, y + single(_LIFT), y), _in_range)
        return near * tirx.Select(y < low, single(math.exp(-_LIFT)), single(1.0))

    # no number goes through: a minimum and a maximum take their second operand then
    return let(tirx.max(single(_EXP_ZERO), tirx.min(single(_EXP_RANGE[1]), x)), of)


def _flushed_exp(x: Expr) -> Expr:
    """e^x, to 1.5 ulp; a result below 2e-38 is 0."""
    low, high = map(single, _EXP_RANGE)
    return let(tirx.max(low, tirx.min(high, x)), _in_range)


def _log(x: Expr) -> Expr:
    """ln(x), to 1 ulp: n * ln(2) + ln(1 + z)."""
    denormal = x < single(_DENORMAL)
    scaled = tirx.Select(denormal, x * single(2.0**_FRACTION_BITS), x)
    shift = tirx.Select(denormal, single(-_FRACTION_BITS), single(0.0))

    def near_one(z: Expr, n: Expr) -> Expr:
        tail = z * z * (z * horner(z, _LOG) - single(0.5)) + n * single(LN2[1])
        return n * single(LN2[0]) + (tail + z)

    def split(bits: Expr) -> Expr:
        offset = bits - _ROOT_HALF
        n = (offset >> _FRACTION_BITS).astype(SINGLE) + shift
        fraction = (offset & ((1 << _FRACTION_BITS) - 1)) + _ROOT_HALF
        z = tirx.reinterpret(SINGLE, fraction) - single(1.0)
        return let(n, lambda n: let(z, lambda z: near_one(z, n)))

    result = let(tirx.reinterpret("int32", scaled), split)
    # infinity and no number stay; a call of isnan would make single numbers of vectors
    bits = tirx.reinterpret("int32", x) & _ALL_BUT_SIGN
    result = tirx.Select(bits >= _INFINITY, x, result)
    result = tirx.Select(x == single(0.0), -tirx.infinity(SINGLE), result)
    return tirx.Select(x < single(0.0), tirx.reinterpret(SINGLE, tirx.const(0x7FC00000)), result)


def _sigmoid(x: Expr) -> Expr:
    """1 / (1 + e^-x), to 3 ulp. A result below 2e-39 becomes 0."""
    return single(1.0) / (single(1.0) + let(-x, _flushed_exp))


def _tanh(x: Expr) -> Expr:
    """tanh(x), to 7 ulp."""
    return _odd(x, TANH, TANH_END)


def _erf(x: Expr) -> Expr:
    """erf(x), to 7 ulp."""
    return _odd(x, _ERF, _ERF_END)


def _odd(x: Expr, ratio: tuple[Sequence[float], Sequence[float]], end: float) -> Expr:
    """An odd function that goes to 1: x * p(x^2) / q(x^2) up to `end`, and 1 from there on."""
    over, under = ratio
    value = let(x * x, lambda square: x * horner(square, over) / horner(square, under))
    # no number goes through: a minimum and a maximum take their second operand then
    value = tirx.max(single(-1.0), tirx.min(single(1.0), value))
    value = tirx.Select(x > single(end), single(1.0), value)
    return tirx.Select(x < single(-end), single(-1.0), value)


def _round(x: Expr) -> Expr:
    """The nearest integer; halfway between two, the even one."""

    def rounded(far: Expr) -> Expr:
        return let(
            x + far, lambda shifted: tirx.Select(tirx.abs(x) < single(_WHOLE), shifted - far, x)
        )

    return let(tirx.Select(x < single(0.0), single(-_WHOLE), single(_WHOLE)), rounded)


_FUNCTIONS: Final = {
    "tirx.exp": _exp,
    "tirx.log": _log,
    "tirx.sigmoid": _sigmoid,
    "tirx.tanh": _tanh,
    "tirx.erf": _erf,
    "tirx.nearbyint": _round,
    "tirx.rsqrt": inverse_root,
}
"""By the name of the intrinsic."""
