"""Split a function into work on weights and the rest, as TVM's `LiftTransformParams` does.

TVM's pass visits the type of the tuple of all weights at each use of one: its time is quadratic.
Here it is linear, and the result is the same. Only graphs of one function without branches and with
parameters of static shapes are split:

    main(x, w)                            main(x, lv)
      lv = permute_dims(w, [2, 3, 1, 0])    y = conv2d(x, lv)
      y = conv2d(x, lv)                   main_transform_params(model_params)
                                            w = model_params[0]
                                            lv = permute_dims(w, [2, 3, 1, 0])
                                            output_tuple = (lv,)
"""

from collections.abc import Mapping
from typing import Final

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir.expr import is_prim_expr

from autopipe.compiler.graph.hoist import COUNT
from autopipe.compiler.graph.literals import has_static_sizes
from autopipe.compiler.graph.weights import TRANSFORM

_LEAVES: Final = (tvm.ir.GenericConst, tvm.ir.GlobalVar, relax.ShapeExpr, relax.ExternFunc)
"""Operands that read no variable of a graph."""


class NotSplitError(Exception):
    """The form of a function is supported by TVM's pass only."""


def split_transform(function: relax.Function) -> tuple[relax.Function, relax.Function]:
    """Split a function; return it without the work on its weights, and a function of that work.

    Raises NotSplitError.
    """
    count = int((function.attrs or {}).get(COUNT, len(function.params)))
    weights = list(function.params[count:])
    if not all(has_static_sizes(param.ty) for param in function.params):
        raise NotSplitError
    constant_variables, lifted_variables, read_variables = (
        set(weights),
        set(weights),
        set[relax.Var](),
    )
    work: list[relax.VarBinding] = []
    for block in function.body.blocks:
        for binding in block.bindings:
            if not isinstance(binding, relax.VarBinding) or not _is_flat(binding.value):
                raise NotSplitError
            variables = relax.analysis.free_vars(binding.value)
            if _is_lifted(block, binding, variables, constant_variables):
                work.append(binding)
                constant_variables.add(binding.var)
                if not lifted_variables.isdisjoint(variables):
                    lifted_variables.add(binding.var)
            else:
                read_variables.update(variables)
    if not isinstance(function.body.body, relax.Var) or function.body.body in constant_variables:
        raise NotSplitError
    outputs = [weight for weight in weights if weight in read_variables]
    outputs += [b.var for b in work if b.var in lifted_variables and b.var in read_variables]
    remaining_function = _drop_work(function, [*function.params[:count]], outputs, lifted_variables)
    return remaining_function, _TransformBuilder(weights).build(work, outputs)


def _is_lifted(
    block: relax.BindingBlock,
    binding: relax.VarBinding,
    variables: list[relax.Var],
    constant: set[relax.Var],
) -> bool:
    """Tell whether a value is constant at compile time, given constant weights."""
    return (
        isinstance(block, relax.DataflowBlock)
        and constant.issuperset(variables)
        and not isinstance(binding.value, relax.ExternFunc)
        and has_static_sizes(binding.var.ty)
    )


def _is_flat(value: relax.Expr) -> bool:
    """Tell whether a value has no nested function or branch."""
    if isinstance(value, relax.Var):  # the most frequent kind
        return not is_prim_expr(value)
    if isinstance(value, relax.Call):
        is_named = isinstance(value.op, tvm.ir.Op | tvm.ir.GlobalVar)
        is_barrier = getattr(value.op, "name", "") == "relax.builtin.stop_lift_params"
        return is_named and not is_barrier and all(map(_is_flat, value.args))
    if isinstance(value, relax.Tuple):
        return all(map(_is_flat, value.fields))
    if isinstance(value, relax.TupleGetItem):
        return _is_flat(value.tuple_value)
    return isinstance(value, _LEAVES) or is_prim_expr(value)


def _drop_work(
    function: relax.Function,
    inputs: list[relax.Var],
    outputs: list[relax.Var],
    lifted_variables: set[relax.Var],
) -> relax.Function:
    """Rewrite a function to take the results of the work on weights instead of the weights."""
    new_params = {variable: relax.Var(variable.name, variable.ty) for variable in outputs}
    blocks = [
        type(block)([binding for binding in block.bindings if binding.var not in lifted_variables])
        for block in function.body.blocks
    ]
    body = tvm_ffi.structural_map(
        relax.SeqExpr(blocks, function.body.body), (relax.Var, lambda var: new_params.get(var, var))
    )
    params = [*inputs, *new_params.values()]
    return relax.Function(params, body, function.ret_ty, function.is_pure, function.attrs)


class _TransformBuilder:
    """Builds the function that takes a tuple of weights."""

    def __init__(self, weights: list[relax.Var]) -> None:
        self._builder = relax.BlockBuilder()
        self._params = relax.Var("model_params", relax.TupleType([var.ty for var in weights]))
        self._places: Mapping[relax.Var, int] = {var: at for at, var in enumerate(weights)}
        self._variables: dict[relax.Var, relax.Var] = {}
        self._bindings: list[relax.VarBinding] = []

    def build(self, work: list[relax.VarBinding], outputs: list[relax.Var]) -> relax.Function:
        """Build the function that does the work and returns a tuple of the outputs.

        If these are all weights unchanged, it returns its parameter.
        """
        if list(map(self._places.get, outputs)) == list(range(len(self._places))):
            return self._build_function(relax.SeqExpr([], self._params))
        for binding in work:
            value = self._replace(binding.value)
            variable = relax.DataflowVar(binding.var.name, binding.var.ty)
            self._variables[binding.var] = variable
            self._bindings.append(relax.VarBinding(variable, value))
        result = self._builder.normalize(relax.Tuple(list(map(self._replace, outputs))))
        output = relax.Var("output_tuple", relax.TupleType(list(result.ty.fields)))
        self._bindings.append(relax.VarBinding(output, result))
        block = relax.DataflowBlock(_drop_unread(self._bindings, output))
        return self._build_function(relax.SeqExpr([block], output))

    def _build_function(self, body: relax.SeqExpr) -> relax.Function:
        new_body = self._builder.normalize(body)
        function = relax.Function([self._params], new_body, body.body.ty)
        return function.with_attr(COUNT, 0).with_attr("global_symbol", TRANSFORM)

    def _replace(self, value: relax.Expr) -> relax.Expr:
        """Rewrite a value to read the variables of the new function."""
        if isinstance(value, relax.Var):
            return self._variables[value] if value in self._variables else self._bind_weight(value)
        if isinstance(value, relax.Call):
            arguments = list(map(self._replace, value.args))
            parts = value.op, arguments, value.attrs, value.ty_args, value.span, value.ty
            return self._builder.normalize(relax.Call(*parts))
        if isinstance(value, relax.Tuple):
            return self._builder.normalize(relax.Tuple(list(map(self._replace, value.fields))))
        if isinstance(value, relax.TupleGetItem):
            item = relax.TupleGetItem(self._replace(value.tuple_value), value.index)
            return self._builder.normalize(item)
        return value

    def _bind_weight(self, weight: relax.Var) -> relax.Var:
        """Bind a variable for one use of a weight."""
        name = self._builder.get_unique_name(weight.name)
        variable = relax.DataflowVar(name, weight.ty)
        item = relax.TupleGetItem(self._params, self._places[weight])
        self._bindings.append(relax.VarBinding(variable, self._builder.normalize(item)))
        return variable


def _drop_unread(bindings: list[relax.VarBinding], result: relax.Var) -> list[relax.VarBinding]:
    """Remove the bindings that a result does not depend on."""
    read, read_bindings = {result}, list[relax.VarBinding]()
    for binding in reversed(bindings):
        if binding.var in read:
            read.update(relax.analysis.free_vars(binding.value))
            read_bindings.append(binding)
    return read_bindings[::-1]
