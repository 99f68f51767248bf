"""What functions compute: schedules as they ship, and the plain loops that they have to agree with.

Compiling is most of what these tests cost. So the schedules of one function are compiled together,
and plain loops without LLVM's optimizer: nobody ships them, and they are the same sums.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm

from autopipe.measure.cases import CASES, make_case_arguments
from tests.compiler.graphs import PLAIN, TARGET
from tests.schedules import emulated

Array = np.ndarray[Any, Any]
Inputs = Callable[[tvm.IRModule], list[Any]]
"""Makes tensors for all parameters of `main`; the last one is the result."""


def positive(module: tvm.IRModule) -> list[Any]:
    """Return values from 1 to 9, of which no sum cancels."""
    return _drawn(module, lambda random, shape: random.uniform(1, 9, shape))


def normal(module: tvm.IRModule) -> list[Any]:
    """Return values around zero, both truths and integers of both signs among them."""
    return _drawn(module, lambda random, shape: 8 * random.standard_normal(shape))


def _drawn(
    module: tvm.IRModule, draw: Callable[[np.random.Generator, list[int]], Array]
) -> list[Any]:
    random = np.random.default_rng(0)
    arrays = [
        draw(random, [int(extent) for extent in param.shape]).astype(str(param.dtype))
        for param in module["main"].params
    ]
    return list(map(tvm.runtime.tensor, arrays))


def compiled(modules: Sequence[tvm.IRModule], target: tvm.target.Target = TARGET) -> list[Any]:
    """Return `main` of each module, all in one library.

    Code for a processor that this one is not is emulated.
    """
    functions = {
        f"main{place}": module["main"].with_attr("global_symbol", f"main{place}")
        for place, module in enumerate(modules)
    }
    with tvm.transform.PassContext(opt_level=3, config={"tirx.disable_assert": True}):
        library = tvm.tirx.build(tvm.IRModule(functions), target)
    if emulated.needed(target):
        library = emulated.loaded(library)
    return [library[name] for name in functions]


def called(function: Any, tensors: list[Any]) -> Array:
    """Return the last argument after a call."""
    function(*tensors)
    found: Array = tensors[-1].numpy()
    return found


def of_the_check(case: str) -> Inputs:
    """Return what makes the inputs of a case that winners are checked with."""
    return lambda module: list(map(tvm.runtime.tensor, make_case_arguments(module, case, 0)))


CHECKED = tuple(map(of_the_check, CASES))


def assert_same(
    module: tvm.IRModule,
    *scheduled: tvm.IRModule,
    inputs: Sequence[Inputs] = (positive,),
    rtol: float = 2e-5,
    of_largest: float = 0.0,
    target: tvm.target.Target = TARGET,
) -> None:
    """Compare schedules of a function with its plain loops.

    They may differ by `rtol` of a value, and by that part `of_largest` of the largest value.
    """
    assert scheduled
    (plain,) = compiled([module], PLAIN)
    functions = compiled(scheduled, target)
    for make in inputs:
        right = called(plain, make(module))
        atol = of_largest * float(np.abs(right.astype("float64")).max(initial=0.0))
        for function in functions:
            found = called(function, make(module))
            np.testing.assert_allclose(found, right, rtol=rtol, atol=atol)
