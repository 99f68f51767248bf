"""Finds the inputs that are indices of another tensor, and how many entries they choose from."""

from typing import Any

import tvm
from tvm import relax

from autopipe.compiler.graph.calls import find_callee, list_bindings
from autopipe.compiler.loops import index_inputs
from autopipe.compiler.passes.legalize import legalize_ops


def find_index_limits(module: tvm.IRModule) -> dict[str, int]:
    """Return, by parameter of `main`, how many entries its values choose from.

    An element is an index if it is read inside the index of a read or write. It is followed back to
    a parameter through blocks that compute it from that parameter alone.
    """
    with tvm.target.Target({"kind": "llvm"}):
        module = legalize_ops(module)
    main = module["main"]
    carried: dict[Any, set[str]] = {param: {param.name} for param in main.params}
    limits: dict[str, int] = {}
    for binding in list_bindings(main):
        name = find_callee(binding.value)
        if name is None:
            if isinstance(binding.value, relax.Var):
                carried[binding.var] = carried.get(binding.value, set())
            continue
        function = module[name]
        for argument, param in zip(binding.value.args[1].fields, function.params, strict=False):
            carried[param] = (
                carried.get(argument, set()) if isinstance(argument, relax.Var) else set()
            )
        index_inputs.trace_indices(function, carried, limits)
        carried[binding.var] = carried.get(function.params[-1], set())
    return limits
