"""Replace the unscheduled loops of each kernel by its scheduled body, or add an empty kernel."""

import tvm
from tvm import tirx

from autopipe.compiler.module_io import list_prim_funcs
from autopipe.compiler.pass_state import LinkState

_SCHEDULED = {"tirx.is_scheduled": True}


def insert_schedules(module: tvm.IRModule, state: LinkState) -> tvm.IRModule:
    """Replace kernels by the `main` of the scheduled modules of their names."""
    module = tvm.IRModule(dict(module.functions_items()))
    names = {name for name, _ in list_prim_funcs(module)}
    for name, body in state.scheduled.items():
        if name not in names:  # a copy that has become a view
            continue
        function = body["main"].without_attr("global_symbol").with_attr(_SCHEDULED)
        module.update_func(module.get_global_var(name), function)
    return module


def add_kernel(module: tvm.IRModule) -> tvm.IRModule:
    """Add an empty PrimFunc to a module without any, such as an identity.

    Otherwise TVM would pass a C file instead of an object file to the linker.
    """
    if any(list_prim_funcs(module)):
        return module
    extended_module = tvm.IRModule(dict(module.functions_items()))
    extended_module["nothing"] = tirx.PrimFunc([], tirx.Evaluate(0)).with_attr(
        {"global_symbol": "nothing", **_SCHEDULED}
    )
    return extended_module
