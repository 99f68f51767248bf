"""Replace the unscheduled loops of each kernel by its scheduled body."""

import tvm

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
