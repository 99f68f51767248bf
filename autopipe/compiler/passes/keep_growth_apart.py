"""Prevent fusion of a matmul or convolution with an op that makes its result larger.

`FuseOps` fuses every broadcast op after a convolution or matmul into the same function. That is
wrong where the result is the small side of the broadcast, as the scale per channel of
squeeze-and-excitation (Hu et al., arXiv:1709.01507):

    scale = matmul(x, w)                        # [1, 64] @ [64, 256] -> [1, 256]
    y = multiply(image, reshape(scale))         # [1, 256, 56, 56] * [1, 256, 1, 1]

In one function, the loops over 802,816 elements of `y` would compute the 256 sums inside, or the
matmul would be computed with the loops of the image. So `multiply` is marked injective here:
`FuseOps` fuses injective ops after no matmul, but with each other as before.

An op with indices computed from floats, such as a resize, is marked like a matmul: elementwise ops
are fused after it, a transpose is not, nor are its producers.

    larger = resize2d(x)                        # [1, 65, 65, 21] -> [1, 257, 257, 21]
    y = permute_dims(larger)                    # -> [1, 21, 257, 257]

In one function, neighbours in the loops would be columns: indices would be computed from floats for
each element. Unfused, the channels of a pixel are read together, as a vector.

A value that is read twice in a function is inlined twice, so a chain of such ops doubles the
expression at each step. An op with an expression longer than `_LONGEST` is marked like a matmul,
too: it reads its operands from memory. Equal calls share a PrimFunc, so all of them do.

    y = multiply(x, sigmoid(x))                 # 2 x
    z = multiply(y, sigmoid(y))                 # 4 x
"""

from functools import cache
from itertools import zip_longest

import tvm
from tvm import relax

from autopipe.compiler.find_nodes import find_nodes, list_loads
from autopipe.compiler.graph.calls import graph_functions, is_kernel_call, list_bindings
from autopipe.compiler.graph.literals import count_elements, read_shape
from autopipe.tasks.op_info import KINDS

_BROADCAST, _INJECTIVE, _PRODUCT = map(
    KINDS.index, ("broadcast", "injective", "out_elementwise_fusable")
)

_PATTERN = "op_pattern"

_LONGEST = 256
"""Most ops of an expression per element of a kernel. Activations take about ten; from a thousand on
LLVM takes seconds."""


def keep_growth_apart(module: tvm.IRModule) -> tvm.IRModule:
    """Mark each op that makes the result of a matmul larger as injective.

    The module is legalized, and its PrimFuncs have the attribute `op_pattern` of TVM.
    """
    products: set[str] = set()  # results of matmuls, and elementwise functions of them
    spreading: set[tvm.ir.GlobalVar] = set()
    choosing: set[tvm.ir.GlobalVar] = set()
    lengths: dict[str, int] = {}  # ops in the expression of a result
    read_pattern = cache(lambda function: _read_pattern_kind(module[function]))
    graphs = (function for _, function in graph_functions(module))
    for binding in (binding for function in graphs for binding in list_bindings(function)):
        call, result = binding.value, binding.var
        if not is_kernel_call(call):
            continue
        function, operands = call.args[0], list(call.args[1].fields)
        pattern = read_pattern(function)
        read = [operand for operand in operands if isinstance(operand, relax.Var)]
        follows = 0 <= pattern <= _BROADCAST
        sources = [variable for variable in read if variable.name in products]
        if pattern == _PRODUCT or (follows and sources):
            products.add(result.name)
        if follows and any(_is_broadcast(source.ty, result.ty) for source in sources):
            spreading.add(function)
        length = 1 + sum(lengths.get(variable.name, 0) for variable in read)
        if not 0 <= pattern <= _INJECTIVE:
            length = 0
        elif length > _LONGEST:
            choosing.add(function)
            length = 1
        lengths[result.name] = length
        if (
            pattern == _INJECTIVE
            and all(count_elements(operand) < count_elements(result) for operand in operands)
            and _has_float_indices(module[function])
        ):
            choosing.add(function)
    for functions, pattern_kind in ((spreading, _INJECTIVE), (choosing, _PRODUCT)):
        for function in functions:
            module.update_func(function, module[function].with_attr(_PATTERN, pattern_kind))
    return module


def _is_broadcast(source: tvm.ir.Type, result: tvm.ir.Type) -> bool:
    """Tell whether a dimension of 1 becomes larger, or dynamic: the likely size is rarely 1.

    The rank of the result is at least that of the source.
    """
    if not isinstance(source, relax.TensorType) or not isinstance(result, relax.TensorType):
        return False
    extents = zip_longest(*(reversed(read_shape(kind)) for kind in (source, result)), fillvalue=1)
    return any(before == 1 != after for before, after in extents)


def _has_float_indices(function: tvm.tirx.PrimFunc) -> bool:
    """Tell whether an index of a read is computed from a float."""
    return any(
        _is_integer(cast) and not _is_integer(cast.value)
        for load in list_loads(function.body)
        for index in load.indices
        for cast in find_nodes(index, tvm.tirx.Cast)
    )


def _is_integer(value: tvm.ir.Expr) -> bool:
    return "int" in str(value.ty.dtype)


def _read_pattern_kind(function: tvm.tirx.PrimFunc) -> int:
    """Return TVM's pattern kind of a PrimFunc, an index into `KINDS`; -1 if unknown."""
    attrs = function.attrs
    return int(attrs[_PATTERN]) if attrs and _PATTERN in attrs else -1
