"""Compare the code of PrimFuncs."""

import tvm
import tvm_ffi


def is_same_code(left: tvm.tirx.PrimFunc, right: tvm.tirx.PrimFunc) -> bool:
    """Tell whether two PrimFuncs are structurally equal. Their attributes may differ."""
    return bool(tvm_ffi.structural_equal(_drop_attributes(left), _drop_attributes(right)))


def _drop_attributes(function: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    for attribute in function.attrs.keys() if function.attrs else ():
        function = function.without_attr(attribute)
    return function
