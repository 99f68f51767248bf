"""Share one object among equal types, attributes and shapes of a graph.

TVM infers a type for each call, and serializes each of them: for a graph of 10,000 nodes they are
three quarters of the text. A shape operand is ten objects. A shared object is serialized once, and
then by number.

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
"""Returns the first object that is equal to a type, attributes or a shape."""


def share_types(module: tvm.IRModule) -> tvm.IRModule:
    """Share equal types, attributes and shapes among the variables and calls of a module."""
    objects_by_hash: dict[int, Any] = {}
    results: dict[int, tuple[Any, Any]] = {}  # by address; the candidate is kept alive for it

    def find(candidate: Any) -> Any:  # noqa: ANN401 - of any class
        if (result := results.get(address := candidate.__chandle__())) is not None:
            return result[1]
        first = objects_by_hash.setdefault(tvm_ffi.structural_hash(candidate), candidate)
        first = first if tvm_ffi.structural_equal(first, candidate) else candidate
        results[address] = candidate, first
        return first

    graph = graph_functions(module)
    if not graph:
        return module
    # a variable holds the types of all parameters, and takes no others
    names = {variable: tvm.ir.GlobalVar(variable.name_hint) for variable, _ in graph}
    functions = {variable: f for variable, f in module.functions_items() if variable not in names}
    for variable, old_function in graph:
        functions[names[variable]] = function = _share_in_function(old_function, names, find)
        set_type(names[variable], function.ty)
    return tvm.IRModule(functions, attrs=module.attrs)


def _share_in_function(
    function: relax.Function, names: Mapping[tvm.ir.GlobalVar, tvm.ir.GlobalVar], find: _Find
) -> relax.Function:
    def share_attributes(call: relax.Call, mutator: tvm_ffi.StructuralMutator) -> relax.Call:
        new_call = mutator.default_mutate(call)
        if new_call.attrs is None or (attributes := find(new_call.attrs)).same_as(new_call.attrs):
            return new_call
        parts = new_call.op, new_call.args, attributes, new_call.ty_args, new_call.span, new_call.ty
        return relax.Call(*parts)

    new_function = tvm_ffi.structural_mutate(
        function,
        [
            (relax.Call, share_attributes),
            (relax.TensorType, lambda kind, _: find(kind)),
            (relax.ShapeExpr, lambda shape, _: find(shape)),
            (tvm.ir.TupleType, lambda kind, mutator: find(mutator.default_mutate(kind))),
            (tvm.ir.GlobalVar, lambda variable, _: names.get(variable, variable)),
            (tvm.ir.GenericConst, lambda constant, _: constant),  # a copy would be another one
        ],
    )
    return relax.Function(
        new_function.params, new_function.body, function.ret_ty, function.is_pure, function.attrs,
        function.span,
    )  # fmt: skip
