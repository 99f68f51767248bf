"""Import TVM in four fifths of the time, without PyTorch, and so that builds come out the same."""

from autopipe.compiler.patches import (
    cache_callbacks,
    compare_variables,
    iterate_arrays,
    list_functions_once,
    omit_torch,
    order_size_variables,
)

with omit_torch(), list_functions_once():
    import tvm  # noqa: F401 - loads it

    cache_callbacks()
    compare_variables()
    iterate_arrays()
    order_size_variables()

from autopipe.compiler.arithmetic import libm, reducers  # noqa: F401 - wherever kernels are made
from autopipe.compiler.graph.shared_inference import share_type_inference

share_type_inference()
