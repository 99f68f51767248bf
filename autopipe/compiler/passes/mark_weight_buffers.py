"""Marks the parameters of kernels that are weights, as TVM's `AttachAttrLayoutFreeBuffers` does.

TVM's pass adds a kernel for each call and looks whether the module has an equal one: it takes a
second at 10,000 calls. Here calls of a kernel with weights at the same places share a new kernel,
which gets the name that TVM's would have:

    conv2d(x, w) with w a weight     conv2d1(x, w), which has `layout_free_buffers: [1]`
"""

import tvm
import tvm_ffi
from tvm import relax
from tvm.s_tir import renew_defs

from autopipe.compiler.graph.calls import find_callee
from autopipe.compiler.graph.hoist import COUNT

_ATTRIBUTE = "layout_free_buffers"


def mark_weight_buffers(module: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose graph calls kernels that state which of their parameters are weights.

    Weights are constants, and the parameters of a function behind its inputs if it states how many
    these are. The kernels without marks stay in the module.
    """
    marked = _MarkedKernels(module)
    written = {
        variable: marked.replace_in(function)
        for variable, function in module.functions_items()
        if isinstance(function, relax.Function)
    }
    made = marked.builder.get()
    for variable, function in written.items():
        made.update_func(variable, function)
    return made


class _MarkedKernels:
    """The kernels of a module, and those with marks that were added."""

    def __init__(self, module: tvm.IRModule) -> None:
        self.builder = relax.BlockBuilder(module)
        self._module = module
        self._made: dict[tuple[str, tuple[int, ...]], tvm.ir.GlobalVar] = {}
        """By the name of a kernel, and which of its arguments are weights."""

    def replace_in(self, function: relax.Function) -> relax.Function:
        """Return a function of the graph that calls kernels with marks."""
        count = int((function.attrs or {}).get(COUNT, len(function.params)))
        weights = set(function.params[count:])

        def mark(call: relax.Call) -> relax.Call:
            if (name := find_callee(call)) is None:
                return call
            kernel, given, *others = call.args
            places = tuple(
                at
                for at, value in enumerate(given.fields)
                if isinstance(value, tvm.ir.GenericConst) or value in weights
            )
            if (made := self._made.get((name, places))) is None:
                copied = renew_defs(self._module[kernel])  # no function shares variables
                marked = copied.with_attr(_ATTRIBUTE, list(places))
                made = self._made[name, places] = self.builder.add_func(marked, name)
            operands = [made, given, *others]
            return relax.Call(call.op, operands, call.attrs, call.ty_args, call.span, call.ty)

        written: relax.Function = tvm_ffi.structural_map(function, (relax.Call, mark))
        return written
