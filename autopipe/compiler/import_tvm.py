"""Import TVM in four fifths of the time, and without PyTorch."""

from autopipe.compiler.patches import list_functions_once, omit_torch

with omit_torch(), list_functions_once():
    import tvm  # noqa: F401 - loads it

from autopipe.compiler import libm, reducers  # noqa: F401 - wherever kernels are made
