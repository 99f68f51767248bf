"""Whether the op information of lowered modules agrees with their TIR, and what was looked at."""

from collections import Counter

import numpy as np
import tvm

from autopipe.compiler import module_io, tasks
from autopipe.compiler.loops.code_equality import is_same_code
from autopipe.tasks.op_info import ATTRIBUTE, Literal, OpInfo, Parameter
from autopipe.tasks.tensor import Tensor
from tests.compiler import graphs
from tests.compiler.rebuild import RebuildError, rebuild

SAME, COMPARED = "rebuilt, the same code", "rebuilt, the same numbers"


def prove(lowered):
    """Check every PrimFunc of a lowered module; return counts of ops, functions and reasons.

    Code that is made again differs where TVM writes the same loops in another way.
    """
    found, modules = tasks.extract_tasks(lowered)
    functions = dict(module_io.list_prim_funcs(lowered))
    assert {name for task in found for name in task.functions} == set(functions)
    assert all(ATTRIBUTE in (function.attrs or {}) for function in functions.values())
    counts = Counter(functions=len(functions), tasks=len(found))
    for task in found:
        assert OpInfo.model_validate_json(task.info.model_dump_json()) == task.info
        check_tensors(task)
        counts.update(f"op {op.name}" for op in task.info.ops)
        counts[outcome(task, modules[task.workload]["main"])] += 1
    return counts


def check_tensors(task):
    """Check arguments and results against the buffers of the PrimFunc."""
    info = task.info
    assert info.ops
    read = set()
    for index, op in enumerate(info.ops):
        for argument in op.arguments:
            for each in getattr(argument, "fields", (argument,)):
                if not isinstance(each, Literal):
                    tensor_of(each, info.ops[:index], task.inputs)
                if isinstance(each, Parameter):
                    read.add(each.parameter)
    assert read == set(range(len(task.inputs)))
    results = tuple(tensor_of(each, info.ops, task.inputs) for each in info.results)
    assert results == task.outputs


def tensor_of(argument, ops, inputs):
    if isinstance(argument, Literal):
        return Tensor(shape=argument.shape, dtype=argument.dtype)
    if isinstance(argument, Parameter):
        return inputs[argument.parameter]
    return ops[argument.op].outputs[argument.output]


def outcome(task, function):
    try:
        again = rebuild(task.info, task.inputs, graphs.TARGET)
    except RebuildError as error:
        return f"not rebuilt: {error}"
    if is_same_code(function, again):
        return SAME
    for one, other in zip(*(computed(each, task) for each in (function, again)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, err_msg=str(task.info))
    return COMPARED


def computed(function, task):
    """Return what a PrimFunc computes from seeded inputs."""
    rng = np.random.default_rng(0)
    inputs = [
        (4 * rng.standard_normal(tensor.shape)).astype(tensor.dtype) for tensor in task.inputs
    ]
    outputs = [np.zeros(tensor.shape, tensor.dtype) for tensor in task.outputs]
    arguments = [tvm.runtime.tensor(array) for array in (*inputs, *outputs)]
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    tvm.compile(module, target=graphs.TARGET)["main"](*arguments)
    return [argument.numpy() for argument in arguments[len(inputs) :]]
