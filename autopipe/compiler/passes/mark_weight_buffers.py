"""Mark the weights among parameters of kernels, as TVM's `AttachAttrLayoutFreeBuffers` does.

TVM's pass adds a kernel for each call and searches the module for an equal one: it takes a second
at 10,000 calls. Here calls of a kernel with weights at the same positions share a new kernel, with
the name that TVM's would have:

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
    """Annotate kernels with the positions of weights among their parameters.

    Weights are constants, and the parameters of a function after its inputs if it has the attribute
    `COUNT`. The kernels without marks stay in the module.
    """
    kernels = _MarkedKernels(module)
    new_functions = {
        variable: kernels.replace_in(function)
        for variable, function in module.functions_items()
        if isinstance(function, relax.Function)
    }
    new_module = kernels.builder.get()
    for variable, function in new_functions.items():
        new_module.update_func(variable, function)
    return new_module


class _MarkedKernels:
    """The kernels of a module, and the added ones with marks."""

    def __init__(self, module: tvm.IRModule) -> None:
        self.builder = relax.BlockBuilder(module)
        self._module = module
        self._made: dict[tuple[str, tuple[int, ...]], tvm.ir.GlobalVar] = {}
        """Added kernels, by name and positions of weights."""

    def replace_in(self, function: relax.Function) -> relax.Function:
        """Rewrite the calls of a function to kernels with marks."""
        count = int((function.attrs or {}).get(COUNT, len(function.params)))
        weights = set(function.params[count:])

        def mark(call: relax.Call) -> relax.Call:
            if (name := find_callee(call)) is None:
                return call
            kernel, operands_tuple, *sizes = call.args
            places = tuple(
                at
                for at, value in enumerate(operands_tuple.fields)
                if isinstance(value, tvm.ir.GenericConst) or value in weights
            )
            if (new_kernel := self._made.get((name, places))) is None:
                kernel_copy = renew_defs(self._module[kernel])  # no function shares variables
                marked_kernel = kernel_copy.with_attr(_ATTRIBUTE, list(places))
                new_kernel = self._made[name, places] = self.builder.add_func(marked_kernel, name)
            operands = [new_kernel, operands_tuple, *sizes]
            return relax.Call(call.op, operands, call.attrs, call.ty_args, call.span, call.ty)

        new_function: relax.Function = tvm_ffi.structural_map(function, (relax.Call, mark))
        return new_function
