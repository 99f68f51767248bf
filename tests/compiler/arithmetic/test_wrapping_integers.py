"""Integer arithmetic of data that leaves the range of its type wraps around."""

import random

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import transform

from autopipe.compiler.arithmetic import (  # noqa: F401 - they register how integers are legalized
    integer_division,
    wrapping_integers,
)
from autopipe.compiler.codegen.compile_kernels import compile_kernel
from autopipe.compiler.target.target import make_host_target
from tests.support.seeds import fuzz_seeds

DTYPES = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
WRAPPING = ("add", "subtract", "multiply")
OTHERS = ("maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor")
COMPARED = ("greater", "less", "greater_equal", "less_equal", "equal", "not_equal")
ONE = ("abs", "negative", "square")
DIVISIONS = ("floor_divide", "mod")
ALIASES = {"mod": "floor_mod"}


def special(dtype):
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    return [low, low + 1, high, high - 1, high // 2, high // 2 + 1, 0, 1, 5]


def chain(seed, dtype):
    """Return a random chain: of each operator the name, the constant and whether it is first.

    An operator that is called as a dtype is a cast; a constant of None is the input.
    """
    draw, kind, steps = random.Random(seed), dtype, []
    for _ in range(draw.randint(1, 4)):
        names = [*WRAPPING * 3, *OTHERS, *DIVISIONS, *COMPARED, *DTYPES[:: draw.randint(1, 3)]]
        name = draw.choice([*names, *(() if kind.startswith("u") else ONE)])
        info = np.iinfo(kind)
        constant = draw.choice([*special(kind), draw.randint(int(info.min), int(info.max))])
        first = draw.random() < 0.3 and name not in DIVISIONS
        if name in DIVISIONS and constant in {0, -1, int(info.min)}:
            constant = 7
        elif kind == dtype and draw.random() < 0.2 and name not in DIVISIONS:
            constant = None
        steps.append((name, constant, first))
        kind = name if name in DTYPES else kind
        if name in COMPARED:
            break
    return steps


def operands(value, x, step, constant_of):
    """Return what an operator is called with."""
    name, constant, first = step
    if name in ONE:
        return [value]
    other = x if constant is None else constant_of(constant)
    return [other, value] if first else [value, other]


def fused(steps, dtype, size):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([size], dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for step in steps:
                value = builder.emit(applied(step, value, x))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    return tvm.transform.Sequential([
        transform.LegalizeOps(), transform.AnnotateTIROpPattern(), transform.FuseOps(),
        transform.FuseTIR(),
    ])(builder.get())  # fmt: skip


def applied(step, value, x):
    if step[0] in DTYPES:
        return relax.op.astype(value, step[0])
    dtype = str(value.ty.dtype)
    given = operands(value, x, step, lambda one: relax.const(np.array(one, dtype), dtype))
    return getattr(relax.op, ALIASES.get(step[0], step[0]))(*given)


def expected(steps, x):
    value = x
    with np.errstate(all="ignore"):
        for step in steps:
            if step[0] in DTYPES:
                value = value.astype(step[0])
                continue
            given = operands(value, x, step, value.dtype.type)
            value = getattr(np, step[0])(*given)
    return value


def numbers(seed, dtype):
    draw, info = random.Random(seed), np.iinfo(dtype)
    every = [draw.randint(int(info.min), int(info.max)) for _ in range(23)]
    return np.array([*special(dtype), *every], dtype)


def difference(seed, dtype, *, vectors):
    """Return how a chain differs from NumPy's; nothing if it does not."""
    steps, x = chain(seed, dtype), numbers(seed, dtype)
    module = fused(steps, dtype, len(x))
    (function,) = (one for one in module.functions.values() if not isinstance(one, relax.Function))
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    if vectors:
        schedule = tvm.s_tir.Schedule(module)
        block = schedule.get_child_blocks(schedule.get_sblock("root"))[-1]
        schedule.vectorize(schedule.split(schedule.get_loops(block)[-1], [None, 8])[1])
        module = schedule.mod
    right = expected(steps, x)
    out = tvm.runtime.tensor(np.zeros_like(right))
    given = [tvm.runtime.tensor(x)] * (len(function.params) - 1)  # twice if both operands are x
    compile_kernel(module, make_host_target(1))["main"](*given, out)
    if np.array_equal(out.numpy(), right):
        return ""
    at = int(np.argmin(out.numpy() == right))
    return f"{seed} {dtype} {steps}: {out.numpy()[at]!r} for {right[at]!r} of {x[at]!r}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_chains_compute_what_numpy_does(dtype):
    assert not [told for seed in range(8) if (told := difference(seed, dtype, vectors=seed % 2))]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_many_chains_compute_what_numpy_does(dtype):
    seeds = fuzz_seeds(1000, 1100)
    assert not [told for seed in seeds if (told := difference(seed, dtype, vectors=seed % 2))]
