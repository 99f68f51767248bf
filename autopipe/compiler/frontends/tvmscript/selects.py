"""Find the inputs that are indices into a tensor, and the number of its entries."""

from typing import Any

import tvm
from tvm import relax

from autopipe.compiler.graph.calls import find_callee, list_bindings
from autopipe.compiler.loops import index_inputs
from autopipe.compiler.passes.legalize import legalize_ops


def find_index_limits(module: tvm.IRModule) -> dict[str, int]:
    """Find the parameters of `main` that are indices, with the number of indexed entries.

    An element is an index if it is read inside the index of a read or write. It is followed back to
    a parameter through blocks that compute it from that parameter alone.
    """
    with tvm.target.Target({"kind": "llvm"}):
        module = legalize_ops(module)
    main = module["main"]
    sources: dict[Any, set[str]] = {param: {param.name} for param in main.params}
    limits: dict[str, int] = {}
    for binding in list_bindings(main):
        name = find_callee(binding.value)
        if name is None:
            if isinstance(binding.value, relax.Var):
                sources[binding.var] = sources.get(binding.value, set())
            continue
        function = module[name]
        for argument, param in zip(binding.value.args[1].fields, function.params, strict=False):
            sources[param] = (
                sources.get(argument, set()) if isinstance(argument, relax.Var) else set()
            )
        index_inputs.trace_indices(function, sources, limits)
        sources[binding.var] = sources.get(function.params[-1], set())
    return limits
