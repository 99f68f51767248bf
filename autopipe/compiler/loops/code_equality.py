"""Compares the code of PrimFuncs."""

import tvm
import tvm_ffi


def is_same_code(one: tvm.tirx.PrimFunc, other: tvm.tirx.PrimFunc) -> bool:
    """Tell whether two PrimFuncs are structurally equal. Their attributes may differ."""
    return bool(tvm_ffi.structural_equal(_drop_attributes(one), _drop_attributes(other)))


def _drop_attributes(function: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    for attribute in function.attrs.keys() if function.attrs else ():
        function = function.without_attr(attribute)
    return function
