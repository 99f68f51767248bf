"""Splits a function in work on weights and the rest, as TVM's `LiftTransformParams` does.

TVM's pass visits the type of the tuple of all weights at each use of one: its time is quadratic.
Here it is linear, and the result is the same. Only graphs of one function without branches, whose
parameters have constant sizes, are split:

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
from tvm import relax, tirx
from tvm.ir.expr import is_prim_expr

from autopipe.compiler.graph.hoist import COUNT
from autopipe.compiler.graph.weights import TRANSFORM

_LEAVES: Final = (tvm.ir.GenericConst, tvm.ir.GlobalVar, relax.ShapeExpr, relax.ExternFunc)
"""Operands that read no variable of a graph."""


class NotSplitError(Exception):
    """A function is of a form that only TVM's pass splits."""


def split_transform(function: relax.Function) -> tuple[relax.Function, relax.Function]:
    """Return a function without the work on its weights, and the function of that work.

    Raises NotSplitError.
    """
    count = int((function.attrs or {}).get(COUNT, len(function.params)))
    weights = list(function.params[count:])
    if any(map(_has_symbols, (param.ty for param in function.params))):
        raise NotSplitError
    constant, lifted, read = set(weights), set(weights), set[relax.Var]()
    work: list[relax.VarBinding] = []
    for block in function.body.blocks:
        for binding in block.bindings:
            if not isinstance(binding, relax.VarBinding) or not _is_flat(binding.value):
                raise NotSplitError
            variables = relax.analysis.free_vars(binding.value)
            if _is_lifted(block, binding, variables, constant):
                work.append(binding)
                constant.add(binding.var)
                if not lifted.isdisjoint(variables):
                    lifted.add(binding.var)
            else:
                read.update(variables)
    if not isinstance(function.body.body, relax.Var) or function.body.body in constant:
        raise NotSplitError
    outputs = [weight for weight in weights if weight in read]
    outputs += [one.var for one in work if one.var in lifted and one.var in read]
    rest = _drop_work(function, [*function.params[:count]], outputs, lifted)
    return rest, _TransformBuilder(weights).build(work, outputs)


def _is_lifted(
    block: relax.BindingBlock,
    binding: relax.VarBinding,
    variables: list[relax.Var],
    constant: set[relax.Var],
) -> bool:
    """Tell whether a value reads nothing that is known only when the model runs."""
    return (
        isinstance(block, relax.DataflowBlock)
        and constant.issuperset(variables)
        and not isinstance(binding.value, relax.ExternFunc)
        and not _has_symbols(binding.var.ty)
    )


def _has_symbols(ty: tvm.ir.Type) -> bool:
    """Tell whether a type has sizes that are no numbers."""
    if isinstance(ty, relax.TupleType):
        return any(map(_has_symbols, ty.fields))
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return True
    return not all(isinstance(size, tirx.IntImm) for size in ty.shape.values)


def _is_flat(value: relax.Expr) -> bool:
    """Tell whether all that a value reads are its operands."""
    if isinstance(value, relax.Call):
        is_named = isinstance(value.op, tvm.ir.Op | tvm.ir.GlobalVar)
        is_barrier = getattr(value.op, "name", "") == "relax.builtin.stop_lift_params"
        return is_named and not is_barrier and all(map(_is_flat, value.args))
    if isinstance(value, relax.Tuple):
        return all(map(_is_flat, value.fields))
    if isinstance(value, relax.TupleGetItem):
        return _is_flat(value.tuple_value)
    if isinstance(value, relax.Var):
        return not is_prim_expr(value)
    return isinstance(value, _LEAVES) or is_prim_expr(value)


def _drop_work(
    function: relax.Function,
    inputs: list[relax.Var],
    outputs: list[relax.Var],
    lifted: set[relax.Var],
) -> relax.Function:
    """Return a function that takes the outputs of the work on weights in place of the weights."""
    given = {variable: relax.Var(variable.name, variable.ty) for variable in outputs}
    blocks = [
        type(block)([one for one in block.bindings if one.var not in lifted])
        for block in function.body.blocks
    ]
    body = tvm_ffi.structural_map(
        relax.SeqExpr(blocks, function.body.body), (relax.Var, lambda var: given.get(var, var))
    )
    params = [*inputs, *given.values()]
    return relax.Function(params, body, function.ret_ty, function.is_pure, function.attrs)


class _TransformBuilder:
    """Writes the function that takes a tuple of weights."""

    def __init__(self, weights: list[relax.Var]) -> None:
        self._builder = relax.BlockBuilder()
        self._params = relax.Var("model_params", relax.TupleType([one.ty for one in weights]))
        self._places: Mapping[relax.Var, int] = {one: at for at, one in enumerate(weights)}
        self._made: dict[relax.Var, relax.Var] = {}
        self._bindings: list[relax.VarBinding] = []

    def build(self, work: list[relax.VarBinding], outputs: list[relax.Var]) -> relax.Function:
        """Return the function that does the work and returns a tuple of the outputs.

        If these are all weights as they are, it returns the tuple that it takes.
        """
        if list(map(self._places.get, outputs)) == list(range(len(self._places))):
            return self._build_function(relax.SeqExpr([], self._params))
        for binding in work:
            value = self._replace(binding.value)
            variable = relax.DataflowVar(binding.var.name, binding.var.ty)
            self._made[binding.var] = variable
            self._bindings.append(relax.VarBinding(variable, value))
        result = self._builder.normalize(relax.Tuple(list(map(self._replace, outputs))))
        returned = relax.Var("output_tuple", relax.TupleType(list(result.ty.fields)))
        self._bindings.append(relax.VarBinding(returned, result))
        block = relax.DataflowBlock(_drop_unread(self._bindings, returned))
        return self._build_function(relax.SeqExpr([block], returned))

    def _build_function(self, body: relax.SeqExpr) -> relax.Function:
        made = self._builder.normalize(body)
        function = relax.Function([self._params], made, body.body.ty)
        return function.with_attr(COUNT, 0).with_attr("global_symbol", TRANSFORM)

    def _replace(self, value: relax.Expr) -> relax.Expr:
        """Return a value that reads the variables of the new function."""
        if isinstance(value, relax.Var):
            return self._made[value] if value in self._made else self._bind_weight(value)
        if isinstance(value, relax.Call):
            arguments = list(map(self._replace, value.args))
            made = relax.Call(value.op, arguments, value.attrs, value.ty_args, value.span)
            return self._builder.normalize(made)
        if isinstance(value, relax.Tuple):
            return self._builder.normalize(relax.Tuple(list(map(self._replace, value.fields))))
        if isinstance(value, relax.TupleGetItem):
            item = relax.TupleGetItem(self._replace(value.tuple_value), value.index)
            return self._builder.normalize(item)
        return value

    def _bind_weight(self, weight: relax.Var) -> relax.Var:
        """Return a variable for one use of a weight."""
        name = self._builder.get_unique_name(weight.name)
        variable = relax.DataflowVar(name, weight.ty)
        item = relax.TupleGetItem(self._params, self._places[weight])
        self._bindings.append(relax.VarBinding(variable, self._builder.normalize(item)))
        return variable


def _drop_unread(bindings: list[relax.VarBinding], result: relax.Var) -> list[relax.VarBinding]:
    """Return the bindings that a result depends on."""
    read, kept = {result}, list[relax.VarBinding]()
    for binding in reversed(bindings):
        if binding.var in read:
            read.update(relax.analysis.free_vars(binding.value))
            kept.append(binding)
    return kept[::-1]
