"""Elementary functions in vectors, against libm: `python benchmarks/elementary.py`.

Each function of 262144 numbers that lie in the second-level cache or near it, on one thread: the
arithmetic that autopipe makes of it, and what LLVM does with TVM's intrinsic, which is a call of
libm for each number. In nanoseconds a number, the minimum and the median of some rounds, in turn;
and how many units in the last place the arithmetic is off at most.
"""

from statistics import median
from time import perf_counter
from typing import Any, Final

import numpy as np
import tvm
from machine import target
from tvm import te, tirx
from tvm.s_tir import Schedule

from autopipe.compiler.graph import elementary
from autopipe.compiler.target.target import make_target

_NUMBERS: Final = 1 << 18
_ROUNDS: Final = 21
_LANES: Final = 32
_FROM_ONE: Final = "acosh"
"""The function that has values from 1 on; others are asked between -1 and 1, and log above 0."""

_FUNCTIONS: Final = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh,
    "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
}  # fmt: skip


def main() -> None:
    """Print a row for each function."""
    print("| function | arithmetic | of medians | libm | of medians | times faster | ulp |")
    print("|---|---|---|---|---|---|---|")
    for name, exact in _FUNCTIONS.items():
        ours, libm = _built(name, lanes=_LANES), _built(name, lanes=1)
        values = _values(name)
        given, out = tvm.runtime.tensor(values), tvm.runtime.empty(values.shape, "float32")
        times: dict[Any, list[float]] = {ours: [], libm: []}
        for _ in range(_ROUNDS):
            for function, taken in times.items():
                start = perf_counter()
                function(given, out)
                taken.append((perf_counter() - start) / _NUMBERS * 1e9)
        ours(given, out)
        wide = exact(values.astype("longdouble"))
        off = np.abs(out.numpy() - wide) / np.spacing(np.abs(wide.astype("float32")))
        least, theirs = min(times[ours]), min(times[libm])
        print(
            f"| {name} | {least:.2f} ns | {median(times[ours]):.2f} ns | {theirs:.2f} ns "
            f"| {median(times[libm]):.2f} ns | {theirs / least:.1f} | {off.max():.1f} |",
            flush=True,
        )


def _built(name: str, *, lanes: int) -> Any:  # noqa: ANN401 - tvm
    """Return a function of numbers: in vectors and as arithmetic, or one by one and by libm."""
    x = te.placeholder((_NUMBERS,), name="x")
    y = te.compute((_NUMBERS,), lambda i: getattr(tirx, name)(x[i]), name="y")
    module = tvm.IRModule({"main": te.create_prim_func([x, y])})
    if lanes > 1:
        sch = Schedule(elementary.mark_inexact(module))
        (loop,) = sch.get_loops(sch.get_sblock("y"))
        sch.vectorize(sch.split(loop, [None, lanes])[1])
        module = elementary.expand_functions(sch.mod)
    return tvm.tirx.build(module, make_target(target()))["main"]


def _values(name: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    low, high = (1.0, 3.0) if name == _FROM_ONE else (1e-6 if name == "log" else -1.0, 1.0)
    return np.random.default_rng(0).uniform(low, high, _NUMBERS).astype("float32")


if __name__ == "__main__":
    main()
