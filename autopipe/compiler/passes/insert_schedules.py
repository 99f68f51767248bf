"""Put the scheduled body of each kernel in the place of its plain loops."""

import tvm

from autopipe.compiler.module_io import list_prim_funcs
from autopipe.compiler.pass_state import LinkState

_SCHEDULED = {"tirx.is_scheduled": True}


def insert_schedules(module: tvm.IRModule, state: LinkState) -> tvm.IRModule:
    """Return the module with the `main` of each scheduled module as the kernel of its name."""
    module = tvm.IRModule(dict(module.functions_items()))
    names = {name for name, _ in list_prim_funcs(module)}
    for name, body in state.scheduled.items():
        if name not in names:  # a copy that has become a view
            continue
        function = body["main"].without_attr("global_symbol").with_attr(_SCHEDULED)
        module.update_func(module.get_global_var(name), function)
    return module
