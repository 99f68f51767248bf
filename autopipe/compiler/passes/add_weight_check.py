"""A function of a library that takes its weights and looks at their shapes, once.

Kernels of such a library do not look at their arguments. Of two weights it is:

    check_weights(w: Tensor((8, 16), "float32"), b: Tensor((16,), "float32")) -> ()

The virtual machine compares what a function is called with to what it says that it takes.
"""

import tvm
from tvm import relax

from autopipe.artifacts.signature import CHECK
from autopipe.compiler.graph.hoist import COUNT


def add_weight_check(module: tvm.IRModule) -> tvm.IRModule:
    """Return a module with a function `check_weights` beside its `main`."""
    main = module["main"]
    weights = main.params[int(main.attrs[COUNT]) :]
    params = [relax.Var(weight.name, weight.ty) for weight in weights]
    builder = relax.BlockBuilder()
    with builder.function(CHECK, params):
        builder.emit_func_output(relax.Tuple([]))
    added = tvm.IRModule(dict(module.functions_items()))
    added[CHECK] = builder.get()[CHECK].with_attr(COUNT, len(params))  # only inputs are compared
    return added
