"""A function of a library that takes its weights as they are stored, once, when it is loaded.

It returns the weights as `main` takes them. The virtual machine compares what a function is called
with to what it says that it takes, so that kernels need not look at their weights. Kernels of
Winograd take more bytes than the weights that they are computed from; these are stored, and
transformed here:

    prepare_weights(w: Tensor((3, 3, 64, 64)), b: Tensor((64,))) -> Tuple:
      u = call_tir(fused_conv2d_weight_prepack, (w,))    # (2, 6, 6, 1, 64, 32)
      return (u, b)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.transform import DeadCodeElimination
from tvm.tirx import For, ForKind, IntImm, PrimFunc

from autopipe.artifacts.signature import PREPARE
from autopipe.compiler.graph.calls import find_callee, list_bindings
from autopipe.compiler.graph.hoist import COUNT
from autopipe.compiler.graph.weights import TRANSFORM
from autopipe.compiler.pass_state import LinkState

_GROWTH: Final = 1.5
"""Least ratio of bytes from which on a weight is transformed when it is loaded: that of F(2x2, 3x3)
is 16 / 9, and padding to whole vectors stays below."""

_LEAST: Final = 32 << 10
"""Fewest bytes that a package must save by it: a kernel takes some kilobytes of code."""

_SHORT: Final = 8
"""Rounds of a loop that is unrolled: rows of the largest tile."""


@dataclass(frozen=True, slots=True)
class _LateWeight:
    """A weight that is transformed when it is loaded."""

    stored: relax.Var
    """What it is computed from, in the work on weights."""
    kernel: tvm.ir.GlobalVar


def prepare_weights(module: tvm.IRModule, state: LinkState) -> tvm.IRModule:
    """Return a module with a function `prepare_weights`; take from `state.packing` what that does.

    Without `state.packs_at_load` the function returns the weights that it is given.
    """
    main = module["main"]
    weights = main.params[int(main.attrs[COUNT]) :]
    late = _find_late_weights(state.packing) if state.packs_at_load else {}
    stored = [late[at].stored.ty if at in late else one.ty for at, one in enumerate(weights)]
    params = [relax.Var(one.name, kind) for one, kind in zip(weights, stored, strict=True)]
    builder = relax.BlockBuilder(module)
    kernels = {
        kernel: builder.add_func(_serialize_kernel(state.packing[kernel]), str(kernel.name_hint))
        for kernel in dict.fromkeys(one.kernel for one in late.values())
    }
    with builder.function(PREPARE, params):
        prepared = [
            builder.emit(relax.call_tir(kernels[late[at].kernel], (param,), weights[at].ty))
            if at in late
            else param
            for at, param in enumerate(params)
        ]
        builder.emit_func_output(relax.Tuple(prepared))
    added = builder.get()
    added[PREPARE] = added[PREPARE].with_attr(COUNT, len(params))  # only inputs are compared
    state.packing = _drop_late_weights(state.packing, late)
    return added


def _find_late_weights(packing: tvm.IRModule) -> dict[int, _LateWeight]:
    """Return the weights to be transformed when they are loaded, by their places."""
    function = packing[TRANSFORM]
    values: dict[relax.Expr, relax.Expr] = {one.var: one.value for one in list_bindings(function)}
    late = {}
    for at, made in enumerate(_read_result_tuple(function).fields):
        value = values.get(made)
        if value is None or find_callee(value) is None or len(value.args[1].fields) != 1:
            continue
        (stored,) = value.args[1].fields
        before, after = _count_bytes(stored.ty), _count_bytes(made.ty)
        if after >= _GROWTH * before and after - before >= _LEAST:
            late[at] = _LateWeight(stored, value.args[0])
    return late


def _drop_late_weights(packing: tvm.IRModule, late: Mapping[int, _LateWeight]) -> tvm.IRModule:
    """Return the work on weights without that on some of them, which are stored as they are."""
    if not late:
        return packing
    function = packing[TRANSFORM]
    (block,) = function.body.blocks
    fields = [
        late[at].stored if at in late else made
        for at, made in enumerate(_read_result_tuple(function).fields)
    ]
    result = relax.Var("stored", tvm.ir.TupleType([one.ty for one in fields]))
    block = relax.DataflowBlock([*block.bindings, relax.VarBinding(result, relax.Tuple(fields))])
    body = relax.SeqExpr([block], result)
    changed = tvm.IRModule(dict(packing.functions_items()))
    changed[TRANSFORM] = relax.Function(
        function.params, body, result.ty, function.is_pure, function.attrs
    )
    return DeadCodeElimination([TRANSFORM])(changed)


def _read_result_tuple(function: relax.Function) -> relax.Tuple:
    """Return the tuple that a function returns, an empty one where it returns its parameter."""
    values = {one.var: one.value for one in list_bindings(function)}
    value = function.body.body
    while value in values:
        value = values[value]
    return value if isinstance(value, relax.Tuple) else relax.Tuple([])


def _count_bytes(kind: relax.TensorType) -> int:
    return prod(map(int, kind.shape.values)) * ((tvm.DataType(str(kind.dtype)).bits + 7) // 8)


def _serialize_kernel(function: PrimFunc) -> PrimFunc:
    """Return a kernel that needs no pool of threads; short loops are unrolled.

    What reads an image is chosen by constants then, of which many are zero.
    """

    def alone(loop: For) -> For:
        kind = loop.kind
        if kind == ForKind.PARALLEL:
            kind = ForKind.SERIAL
        elif kind == ForKind.SERIAL and isinstance(loop.extent, IntImm) and loop.extent <= _SHORT:
            kind = ForKind.UNROLLED
        return For(loop.loop_var, loop.min, loop.extent, kind, loop.body, None, loop.annotations)

    return tvm_ffi.structural_map(function, (For, alone))
