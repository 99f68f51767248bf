"""Gives equal types and attributes of a graph one object each.

TVM infers a type for each call, and writes down each of them: of a graph of 10,000 nodes they are
three quarters of the text. Of one object it writes a number from the second time on.

    lv: Tensor((1, 8, 8, 16))           lv: Tensor((1, 8, 8, 16))
    lv1: Tensor((1, 8, 8, 16))    ->    lv1: the type of lv
"""

from collections.abc import Callable, Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.expr import _update_type as set_type

from autopipe.compiler.graph.calls import graph_functions

_Find = Callable[[Any], Any]
"""Returns the first object that is equal to this one: a type, or attributes of some kind."""


def share_types(module: tvm.IRModule) -> tvm.IRModule:
    """Return an equal module in which variables and calls share types and attributes."""
    known: dict[int, Any] = {}

    def find(one: Any) -> Any:  # noqa: ANN401 - of any class
        first = known.setdefault(tvm_ffi.structural_hash(one), one)
        return first if tvm_ffi.structural_equal(first, one) else one

    graph = graph_functions(module)
    if not graph:
        return module
    # a variable holds the types of all parameters, and takes no others
    names = {variable: tvm.ir.GlobalVar(variable.name_hint) for variable, _ in graph}
    functions = {
        variable: one for variable, one in module.functions_items() if variable not in names
    }
    for variable, one in graph:
        functions[names[variable]] = function = _share_in_function(one, names, find)
        set_type(names[variable], function.ty)
    return tvm.IRModule(functions, attrs=module.attrs)


def _share_in_function(
    function: relax.Function, names: Mapping[tvm.ir.GlobalVar, tvm.ir.GlobalVar], find: _Find
) -> relax.Function:
    def share_attributes(call: relax.Call, mutator: tvm_ffi.StructuralMutator) -> relax.Call:
        written = mutator.default_mutate(call)
        if written.attrs is None or (attributes := find(written.attrs)).same_as(written.attrs):
            return written
        parts = written.op, written.args, attributes, written.ty_args, written.span, written.ty
        return relax.Call(*parts)

    written = tvm_ffi.structural_mutate(
        function,
        [
            (relax.Call, share_attributes),
            (relax.TensorType, lambda kind, _: find(kind)),
            (tvm.ir.TupleType, lambda kind, mutator: find(mutator.default_mutate(kind))),
            (tvm.ir.GlobalVar, lambda variable, _: names.get(variable, variable)),
            (tvm.ir.GenericConst, lambda constant, _: constant),  # a copy would be another one
        ],
    )
    return relax.Function(
        written.params, written.body, function.ret_ty, function.is_pure, function.attrs,
        function.span,
    )  # fmt: skip
