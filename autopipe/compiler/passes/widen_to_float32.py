"""Compute float16 and bfloat16 models in float32 on processors without such arithmetic.

Without this pass LLVM would convert each number before and after each operation. The model still
takes and returns 16-bit floats, but computes in float32 in between, which is also more accurate.
Weights are converted to float32 once, at compile time. Casts of the model to 16 bits, from any
other type, are kept: 70000 becomes an infinity in float16.

Example: `y = relu(matmul(x, w))` in float16 becomes

    x32 = astype(x, "float32"); w32 = astype(w, "float32")
    y = astype(relu(matmul(x32, w32)), "float16")
"""

from typing import Final

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.target.codegen import llvm_cpu_has_features

from autopipe.compiler.graph.calls import graph_functions
from autopipe.compiler.graph.rewrite import rewrite_graph
from autopipe.compiler.target.target import backend_of

HALVES: Final = ("float16", "bfloat16")
_BRAIN: Final = HALVES[1]
_WIDE: Final = "float32"
_CAST: Final = tvm.ir.Op.get("relax.astype")
_ARITHMETIC: Final = ("avx512fp16", "fullfp16")
"""LLVM's names of the processor features for float16 arithmetic."""


def widen_to_float32(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """Convert a module to float32 arithmetic where the target has no 16-bit float arithmetic."""
    if backend_of(target).has_half_arithmetic:
        return module
    halves = HALVES[1:] if _has_half_arithmetic(target) else HALVES
    if not _has_type(module, halves):
        return module
    return rewrite_graph(_Widen(module, halves), module)


def _has_half_arithmetic(target: tvm.target.Target) -> bool:
    return any(llvm_cpu_has_features(feature, target) for feature in _ARITHMETIC)


def _has_type(module: tvm.IRModule, halves: tuple[str, ...]) -> bool:
    """Tell whether a tensor of a graph has one of some dtypes."""
    visited: set[int] = set()  # by address: many values share a type

    def stop(kind: relax.TensorType) -> tvm_ffi.VisitInterrupt | tvm_ffi.WalkResult:
        if (address := kind.__chandle__()) not in visited and str(kind.dtype) in halves:
            return tvm_ffi.VisitInterrupt(kind)
        visited.add(address)
        return tvm_ffi.WalkResult.SKIP

    return any(
        tvm_ffi.structural_walk(function, (relax.TensorType, stop), order="pre") is not None
        for _, function in graph_functions(module)
    )


def _has_half_dtype(kind: tvm.ir.Type, halves: tuple[str, ...]) -> bool:
    if isinstance(kind, relax.TupleType):
        return any(_has_half_dtype(field, halves) for field in kind.fields)
    return isinstance(kind, relax.TensorType) and str(kind.dtype) in halves


@mutator
class _Widen(PyExprMutator):
    """Computes in float32 between parameters and results."""

    def __init__(self, module: tvm.IRModule, halves: tuple[str, ...]) -> None:
        super().__init__(module)
        self._halves = halves
        self._results: dict[relax.Expr, relax.Var] = {}

    def visit_var_(self, var: relax.Var) -> relax.Expr:
        return self._cast_to_float32(super().visit_var_(var))

    def visit_dataflow_var_(self, var: relax.DataflowVar) -> relax.Expr:
        return self._cast_to_float32(super().visit_dataflow_var_(var))

    def visit_generic_const_(self, constant: tvm.ir.GenericConst) -> relax.Expr:
        if not _has_half_dtype(constant.ty, self._halves):
            return constant
        return relax.const(constant.value.numpy().astype(_WIDE), _WIDE)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        args = [self.visit_expr(arg) for arg in call.args]
        if call.op == _CAST and _has_half_dtype(call.ty, self._halves):
            return self._round_to_dtype(args[0], call.args[0].ty.dtype, call.ty.dtype)
        if isinstance(call.op, tvm.ir.Op) and not call.op.name.startswith("relax.call_"):
            return relax.Call(call.op, args, self._widen_attributes(call.attrs), call.ty_args)
        narrow = [self._cast_back(*pair) for pair in zip(args, call.args, strict=True)]
        half_call = relax.Call(call.op, narrow, call.attrs, call.ty_args)
        return self._cast_to_float32(self.builder_.emit(half_call))

    def _round_to_dtype(self, value: relax.Expr, before: object, dtype: object) -> relax.Expr:
        """Round a value of type `before` in the model to `dtype`, as float32.

        TVM casts integers to bfloat16 without rounding, so they are cast to float32 first.
        """
        if before == dtype:
            return value
        if dtype == _BRAIN:
            value = self.builder_.emit(relax.op.astype(value, _WIDE))
        return relax.op.astype(self.builder_.emit(relax.op.astype(value, dtype)), _WIDE)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        super().visit_var_binding_(binding)
        if isinstance(binding.var, relax.DataflowVar) or not _has_half_dtype(
            binding.var.ty, self._halves
        ):
            return
        result = self._cast_back(self.visit_expr(binding.var), binding.var)
        in_dataflow = self.builder_.current_block_is_dataflow()
        emit = self.builder_.emit_output if in_dataflow else self.builder_.emit
        self._results[binding.var] = emit(result)

    def visit_seq_expr_(self, body: relax.SeqExpr) -> relax.Expr:
        new_body = super().visit_seq_expr_(body)
        return relax.SeqExpr(new_body.blocks, self._results.get(body.body, new_body.body))

    def _cast_to_float32(self, value: relax.Expr) -> relax.Expr:
        if not isinstance(value.ty, relax.TensorType) or not _has_half_dtype(
            value.ty, self._halves
        ):
            return value
        return self.builder_.emit(relax.op.astype(value, _WIDE))

    def _cast_back(self, value: relax.Expr, original: relax.Expr) -> relax.Expr:
        """Cast a value to the dtypes of `original`."""
        kind = original.ty
        if not _has_half_dtype(kind, self._halves):
            return value
        if isinstance(kind, relax.TensorType):
            return self.builder_.emit(relax.op.astype(value, kind.dtype))
        parts = [relax.TupleGetItem(value, at) for at in range(len(kind.fields))]
        return relax.Tuple(
            [
                self.builder_.emit(relax.op.astype(self.builder_.emit(part), field.dtype))
                if _has_half_dtype(field, self._halves)
                else part
                for part, field in zip(parts, kind.fields, strict=True)
            ]
        )

    def _widen_attributes(self, attrs: tvm.ir.Attrs | None) -> tvm.ir.Attrs | None:
        """Replace 16-bit float types in the attributes of an op by float32."""
        if attrs is None:
            return attrs
        info = attrs.__class__.__tvm_ffi_type_info__
        values = {field.name: getattr(attrs, field.name) for field in info.fields}
        halves = {name for name, value in values.items() if _is_half(value, self._halves)}
        if not halves:
            return attrs
        new_attributes: tvm.ir.Attrs = tvm.ir.make_node(
            info.type_key, **values | dict.fromkeys(halves, _WIDE)
        )
        return new_attributes


def _is_half(value: object, halves: tuple[str, ...]) -> bool:
    return isinstance(value, tvm_ffi.dtype) and str(value) in halves
