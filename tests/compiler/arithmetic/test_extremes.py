"""Maxima and minima over infinities alone are infinite, in plain loops and in schedules."""

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from autopipe.compiler.module_io import parse_json
from autopipe.compiler.passes.legalize import legalize_ops
from autopipe.schedules.templates.serve import serve
from autopipe.schedules.templates.template import match_function
from tests.schedules.computed import compiled
from tests.schedules.tasks import CONDITIONS, TARGET

INF = np.inf
POOLED = {"pool_size": 3, "strides": 2, "padding": 1}
OPERATORS = {
    "rows": (lambda x: op.max(x, [-1]), (6, 40)),
    "one row": (op.max, (1, 100_000)),
    "columns": (lambda x: op.min(x, [0]), (24, 33)),
    "least of all": (op.min, (40, 50)),
    "sequence": (lambda x: op.nn.max_pool1d(x, **POOLED), (1, 4, 12)),
    "image": (lambda x: op.nn.max_pool2d(x, **POOLED), (1, 8, 9, 10)),
    "channels last": (lambda x: op.nn.max_pool2d(x, **POOLED, layout="NHWC"), (1, 9, 10, 32)),
    "volume": (lambda x: op.nn.max_pool3d(x, **POOLED), (1, 2, 5, 6, 7)),
}


def function(name, dtype="float32"):
    """Return the module of the PrimFunc of an operator, and the shape of what it is given."""
    make_call, shape = OPERATORS[name]
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(make_call(x)))
    with TARGET:
        module = legalize_ops(builder.get())
    (made,) = (f for f in module.functions.values() if isinstance(f, tvm.tirx.PrimFunc))
    return tvm.IRModule({"main": made.with_attr("global_symbol", "main")}), shape


def schedules(module):
    served = serve(module, CONDITIONS.hardware)
    assert served is not None
    first, *_, last = served.template.settings(served.match, CONDITIONS.hardware)
    made = []
    for knobs in (served.knobs, first, last):
        schedule, found = match_function(module, served.template)
        served.template.apply(schedule, found, knobs)
        made.append(schedule.mod)
    return made


@pytest.mark.parametrize("name", OPERATORS)
def test_infinities_alone_stay(name):
    module, shape = function(name)
    result = [int(extent) for extent in module["main"].params[-1].shape]
    for each in compiled([module, *schedules(module)]):
        for value in (-INF, INF, 3.0):
            given = tvm.runtime.tensor(np.full(shape, value, "float32"))
            found = tvm.runtime.tensor(np.zeros(result, "float32"))
            each(given, found)
            np.testing.assert_array_equal(found.numpy(), np.full(result, value, "float32"))


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "uint8"])
def test_each_dtype_has_a_first_value_of_its_own(dtype):
    module, shape = function("rows", dtype)
    least = -INF if dtype.startswith("float") else np.iinfo(dtype).min
    (plain,) = compiled([module])
    found = tvm.runtime.tensor(np.ones(shape[0], dtype))
    plain(tvm.runtime.tensor(np.full(shape, least, dtype)), found)
    np.testing.assert_array_equal(found.numpy(), np.full(shape[0], least, dtype))


def test_equal_reductions_are_one_function_and_are_read_again():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 5), "float32"))
    with builder.function("main", [x]):
        both = [builder.emit(op.max(x, [1])) for _ in range(2)]
        builder.emit_func_output(builder.emit(op.add(*both)))
    with TARGET:
        module = legalize_ops(builder.get())
    assert sorted(var.name_hint for var in module.get_global_vars()) == ["add", "main", "max"]
    tvm.ir.assert_structural_equal(parse_json(tvm.ir.save_json(module)), module)
