"""Propagate layouts through the graph as TVM's `ConvertLayout`, in linear time.

TVM's pass copies the layouts of all previous variables for the rule of each op: at 10,000 nodes
that takes two minutes. Here a rule gets those of the call's operands. The rules,
`FRelaxInferLayout`, are TVM's, and so are the resulting variables and transposes:

    conv2d(x, w) in NHWC, HWIO     lv = permute_dims(x, [0, 2, 3, 1])
                                   lv1 = permute_dims(w, [2, 3, 1, 0])
                                   y = conv2d(lv, lv1)   from here on y is stored as ACDB
    relu(y)                        z = relu(y)           and so is z
    reshape(z), which has no rule  lv2 = permute_dims(z, [0, 3, 1, 2])
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from autopipe.compiler.graph.calls import address_call
from autopipe.compiler.graph.literals import read_rank
from autopipe.compiler.graph.rewrite import rewrite_graph

Layout = Any
"""A `LayoutDecision` of TVM, of axes named from A on in storage order; for a
tuple, a sequence of them."""

_RULE: Final = "FRelaxInferLayout"


def propagate_layouts(module: tvm.IRModule, wishes: Mapping[str, Sequence[str]]) -> tvm.IRModule:
    """Convert ops to the desired layouts, and propagate these to other ops.

    `wishes` has the layouts of data and kernel by op: `{"relax.nn.conv2d": ["NHWC", "HWIO"]}`, each
    a permutation of the axes. Raises the errors of TVM's rules.
    """
    return rewrite_graph(_Blocks(module, wishes), module)


class _Decision(NamedTuple):
    """The result of a rule, `InferLayoutOutput` of TVM."""

    inputs: list[Layout]
    output: Layout
    attributes: tvm.ir.Attrs | None
    arguments: Mapping[Any, relax.Expr]
    """Replaced operands by position."""


@mutator
class _Blocks(PyExprMutator):
    """Converts each dataflow block separately."""

    def __init__(self, module: tvm.IRModule, wishes: Mapping[str, Sequence[str]]) -> None:
        super().__init__(module)
        self._wishes = wishes

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        return _Propagation(self._wishes).visit_binding_block(block)


@mutator
class _Propagation(PyExprMutator):
    """Converts the bindings of a dataflow block; its results keep their layouts."""

    def __init__(self, wishes: Mapping[str, Sequence[str]]) -> None:
        super().__init__()
        self._wishes = tvm_ffi.convert({op: list(layouts) for op, layouts in wishes.items()})
        self._layouts: dict[relax.Var, Layout] = {}
        self._renamed: dict[relax.Var, relax.Var] = {}
        self._decisions: dict[tuple[int | str, ...], tuple[relax.Call, _Decision]] = {}
        """By addresses of op, attributes and types, which the call keeps alive, and by layouts."""

    def visit_var_(self, var: relax.Var) -> relax.Expr:
        return self._convert_layout(var, _find_initial_layout(var.ty))

    def visit_dataflow_var_(self, var: relax.DataflowVar) -> relax.Expr:
        return self._convert_layout(var, _find_initial_layout(var.ty))

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = binding.value
        if isinstance(value, relax.Call):
            self._visit_call(binding, value)
        elif isinstance(value, relax.Tuple):
            layouts = [self._keep_layout(binding, field) for field in value.fields]
            fields = list(map(self._convert_layout, value.fields, layouts))
            self._emit_binding(binding, relax.Tuple(fields), layouts)
        elif isinstance(value, relax.TupleGetItem):
            layout = self._keep_layout(binding, value.tuple_value)
            item = relax.TupleGetItem(self._convert_layout(value.tuple_value, layout), value.index)
            self._emit_binding(binding, item, layout[value.index])
        else:
            super().visit_var_binding_(binding)

    def visit_match_cast_(self, binding: relax.MatchCast) -> None:
        old, new = _find_initial_layout(binding.value.ty), self._find_layout(binding.value)
        shape = binding.ty.shape if isinstance(binding.ty, relax.TensorType) else None
        is_inner = isinstance(binding.var, relax.DataflowVar)
        if not is_inner or not isinstance(shape, relax.ShapeExpr) or _is_same(old, new):
            super().visit_match_cast_(binding)
            return
        sizes = [shape.values[_name_axes(old).index(axis)] for axis in _name_axes(new)]
        ty = relax.TensorType(relax.ShapeExpr(sizes), binding.ty.dtype)
        variable = self.builder_.match_cast(self._convert_layout(binding.value, new), ty)
        self.set_var_remap(binding.var, variable)
        self._renamed[binding.var] = variable
        self._layouts[binding.var] = new

    def _visit_call(self, binding: relax.VarBinding, call: relax.Call) -> None:
        variable, arguments = binding.var, list(call.args)
        decision = self._decide_layouts(call, arguments)
        is_inner = isinstance(variable, relax.DataflowVar)
        initial = _find_initial_layout(variable.ty)
        if decision is None or not (is_inner or _is_nested_tensor(variable.ty)):
            input_layouts = [_find_initial_layout(argument.ty) for argument in arguments]
            new_arguments = list(map(self._convert_layout, arguments, input_layouts))
            new_call = relax.Call(call.op, new_arguments, call.attrs, call.ty_args, call.span)
            is_same = _is_same_list(new_arguments, arguments)
            self._emit_binding(binding, call if is_same else new_call, initial)
            return
        converted = list(map(self._convert_layout, arguments, decision.inputs))
        new_arguments = converted + arguments[len(converted) :]
        for at, argument in decision.arguments.items():
            new_arguments[int(at)] = argument
        result: relax.Expr = relax.Call(
            call.op, new_arguments, decision.attributes, call.ty_args, call.span
        )
        layout = decision.output
        if not is_inner and not _is_same(layout, initial):
            emitted = self.builder_.emit(result)
            self._layouts[emitted] = layout
            result, layout = self._convert_layout(emitted, initial), initial
        self._emit_binding(binding, result, layout)

    def _decide_layouts(
        self, call: relax.Call, arguments: Sequence[relax.Expr]
    ) -> _Decision | None:
        """Apply TVM's layout rule of an op, or return None without a rule.

        Calls of equal attributes, operand types and layouts have one decision, unless it has
        operands of its own.
        """
        if not isinstance(call.op, tvm.ir.Op) or (rule := _find_rule(call.op.name)) is None:
            return None
        tensors = [argument for argument in arguments if _is_nested_tensor(argument.ty)]
        layouts = list(map(self._find_layout, tensors))
        if any(map(_has_unknown_rank, layouts)):
            return None
        key: tuple[int | str, ...] | None = None
        if all(isinstance(argument, relax.Var) for argument in arguments) and all(
            map(_is_leaf, layouts)
        ):
            key = (*address_call(call, arguments), *map(_name_axes, layouts))
            if (earlier := self._decisions.get(key)) is not None:
                return earlier[1]
        variable_layouts = {
            variable: self._layouts[variable]
            for variable in relax.analysis.free_vars(call)
            if variable in self._layouts
        }
        answer = rule(call, self._wishes, variable_layouts)
        (output,) = answer.output_layouts
        decision = _Decision(list(answer.input_layouts), output, answer.new_attrs, answer.new_args)
        if key is not None and not decision.arguments:
            self._decisions[key] = call, decision
        return decision

    def _find_layout(self, value: relax.Expr) -> Layout:
        """Return the storage layout of a value."""
        if isinstance(value, relax.Tuple):
            return list(map(self._find_layout, value.fields))
        if isinstance(value, relax.Var) and value in self._layouts:
            return self._layouts[value]
        return _find_initial_layout(value.ty)

    def _keep_layout(self, binding: relax.VarBinding, value: relax.Expr) -> Layout:
        """Return the layout of a value in a binding: the initial one if it leaves the block."""
        if isinstance(binding.var, relax.DataflowVar):
            return self._find_layout(value)
        return _find_initial_layout(value.ty)

    def _convert_layout(self, value: relax.Expr, layout: Layout) -> relax.Expr:
        """Convert a value, with renamed variables, to a layout."""
        return _permute_axes(self._replace_variables(value), self._find_layout(value), layout)

    def _replace_variables(self, value: relax.Expr) -> relax.Expr:
        if isinstance(value, relax.Tuple):
            fields = list(map(self._replace_variables, value.fields))
            return value if _is_same_list(fields, value.fields) else relax.Tuple(fields)
        return self._renamed.get(value, value) if isinstance(value, relax.Var) else value

    def _emit_binding(self, binding: relax.VarBinding, value: relax.Expr, layout: Layout) -> None:
        """Emit a binding with a new value, and record its layout."""
        old_variable, value = binding.var, self.builder_.normalize(value)
        variable = self.with_type(old_variable, value.ty)
        if not variable.same_as(old_variable):
            self.set_var_remap(old_variable, variable)
            self._renamed[old_variable] = variable
        self.builder_.emit_normalized(relax.VarBinding(variable, value))
        self._layouts[old_variable] = layout


@cache
def _find_rule(op: str) -> Callable[..., Any] | None:
    op_entry = tvm.ir.Op.get(op)
    return op_entry.get_attr(_RULE) if op_entry.has_attr(_RULE) else None


@cache
def _find_rank_layout(rank: int) -> Layout:
    """Return the initial layout of tensors of a rank; -1 is an unknown rank."""
    tensor = relax.Var("tensor", relax.TensorType(dtype="float32", ndim=rank))
    call = relax.BlockBuilder().normalize(relax.op.nn.relu(tensor))
    (layout,) = tvm.ir.Op.get("relax.nn.relu").get_attr(_RULE)(call, {}, {}).output_layouts
    return layout


def _find_initial_layout(ty: tvm.ir.Type) -> Layout:
    if isinstance(ty, relax.TupleType):
        return list(map(_find_initial_layout, ty.fields))
    return _find_rank_layout(read_rank(ty))


def _is_nested_tensor(ty: tvm.ir.Type) -> bool:
    if isinstance(ty, relax.TupleType):
        return all(map(_is_nested_tensor, ty.fields))
    return isinstance(ty, relax.TensorType)


def _is_leaf(layout: Layout) -> bool:
    return hasattr(layout, "is_unknown_dim")


def _has_unknown_rank(layout: Layout) -> bool:
    if _is_leaf(layout):
        return bool(layout.is_unknown_dim)
    return any(map(_has_unknown_rank, layout))


@lru_cache(1 << 12)
def _name_axes(layout: Layout) -> str:
    """Return the axes of a layout in order; empty for unknown rank or rank 0."""
    return "" if layout.layout is None else str(layout.layout.name)


def _is_same(left: Layout, right: Layout) -> bool:
    if _is_leaf(left) and _is_leaf(right):
        return _name_axes(left) == _name_axes(right)
    return len(left) == len(right) and all(map(_is_same, left, right))


def _is_same_list(left: Sequence[relax.Expr], right: Sequence[relax.Expr]) -> bool:
    return all(old.same_as(new) for old, new in zip(left, right, strict=True))


def _permute_axes(value: relax.Expr, old: Layout, new: Layout) -> relax.Expr:
    """Convert a value from one layout to another."""
    if old is new:
        return value
    if _is_leaf(old):
        axes, new_axes = _name_axes(old), _name_axes(new)
        if axes == new_axes or not axes:
            return value
        if set(axes) != set(new_axes):
            raise ValueError(f"a rule states axes out of bounds: {new_axes} of a tensor in {axes}")
        return relax.op.permute_dims(value, [axes.index(axis) for axis in new_axes])
    fields = [
        value.fields[at] if isinstance(value, relax.Tuple) else relax.TupleGetItem(value, at)
        for at in range(len(old))
    ]
    new_fields = list(map(_permute_axes, fields, old, new))
    return value if _is_same_list(new_fields, fields) else relax.Tuple(new_fields)
