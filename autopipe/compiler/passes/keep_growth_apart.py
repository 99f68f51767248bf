"""Keeps TVM from fusing a product with an op that makes its result larger.

`FuseOps` takes every broadcast op behind a convolution or product into the same function. That is
wrong where the product is the small side of the broadcast, as the scale per channel of
squeeze-and-excitation (Hu et al., arXiv:1709.01507):

    scale = matmul(x, w)                        # [1, 64] @ [64, 256] -> [1, 256]
    y = multiply(image, reshape(scale))         # [1, 256, 56, 56] * [1, 256, 1, 1]

In one function, the loops over 802,816 elements of `y` would compute the 256 sums inside, or the
product would be computed with the loops of the image. So `multiply` is marked injective here:
`FuseOps` puts injective ops behind no product, but fuses them with each other as before.

An op that reads where floats say, as a resize of an image does, is marked as a product is: what is
elementwise follows it in its loops, a transpose does not, nor does it take in what comes before.

    larger = resize2d(x)                        # [1, 65, 65, 21] -> [1, 257, 257, 21]
    y = permute_dims(larger)                    # -> [1, 21, 257, 257]

In one function, neighbours in the loops would be columns: for each element anew, the floats say
where to read. Alone, the channels of a pixel are read together, as a vector.

What is read twice in a function is written twice into its expression, so a chain of such ops
doubles it at each step. An op whose expression would be longer than `_LONGEST` is marked as a
product, too: it reads from memory what comes before. Equal calls share a PrimFunc, so all of
them do.

    y = multiply(x, sigmoid(x))                 # 2 x
    z = multiply(y, sigmoid(y))                 # 4 x
"""

import math
from typing import TypeVar

import tvm
from tvm import relax
from tvm_ffi import structural_walk

from autopipe.compiler.graph.calls import graph_functions, is_kernel_call, list_bindings
from autopipe.compiler.graph.literals import read_static_shape
from autopipe.tasks.op_info import KINDS

_BROADCAST, _INJECTIVE, _PRODUCT = map(
    KINDS.index, ("broadcast", "injective", "out_elementwise_fusable")
)

_PATTERN = "op_pattern"

_LONGEST = 256
"""Ops of an expression that one kernel computes for an element. Activations take some ten; from a
thousand on LLVM takes seconds."""


def keep_growth_apart(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module with each op that makes a product's result larger marked injective.

    The module is legalized, and its PrimFuncs have the attribute `op_pattern` of TVM.
    """
    products: set[str] = set()  # results of products, and elementwise functions of them
    spreading: set[tvm.ir.GlobalVar] = set()
    choosing: set[tvm.ir.GlobalVar] = set()
    lengths: dict[str, int] = {}  # ops in the expression of a result
    graphs = (function for _, function in graph_functions(module))
    for binding in (binding for function in graphs for binding in list_bindings(function)):
        call, result = binding.value, binding.var
        if not is_kernel_call(call):
            continue
        pattern, operands = _read_pattern_kind(module, call), list(call.args[1].fields)
        read = [operand for operand in operands if isinstance(operand, relax.Var)]
        follows = 0 <= pattern <= _BROADCAST
        sources = [variable for variable in read if variable.name in products]
        if pattern == _PRODUCT or (follows and sources):
            products.add(result.name)
        if follows and any(_count_elements(a) < _count_elements(result) for a in sources):
            spreading.add(call.args[0])
        length = 1 + sum(lengths.get(variable.name, 0) for variable in read)
        if not 0 <= pattern <= _INJECTIVE:
            length = 0
        elif length > _LONGEST:
            choosing.add(call.args[0])
            length = 1
        lengths[result.name] = length
        if (
            pattern == _INJECTIVE
            and all(_count_elements(operand) < _count_elements(result) for operand in operands)
            and _has_float_indices(module[call.args[0]])
        ):
            choosing.add(call.args[0])
    for functions, marked in ((spreading, _INJECTIVE), (choosing, _PRODUCT)):
        for function in functions:
            module.update_func(function, module[function].with_attr(_PATTERN, marked))
    return module


def _has_float_indices(function: tvm.tirx.PrimFunc) -> bool:
    """Tell whether an index of a read is made of a float."""
    return any(
        _is_integer(cast) and not _is_integer(cast.value)
        for load in _collect_nodes(function.body, tvm.ir.TensorLoad)
        for index in load.indices
        for cast in _collect_nodes(index, tvm.tirx.Cast)
    )


_Node = TypeVar("_Node")


def _collect_nodes(node: tvm.ir.Node, kind: type[_Node]) -> list[_Node]:
    found: list[_Node] = []
    structural_walk(node, (kind, found.append))
    return found


def _is_integer(value: tvm.ir.Expr) -> bool:
    return "int" in str(value.ty.dtype)


def _read_pattern_kind(module: tvm.IRModule, call: relax.Call) -> int:
    """Return TVM's kind of the PrimFunc that is called, an index into `KINDS`; -1 if unknown."""
    attrs = module[call.args[0]].attrs
    return int(attrs[_PATTERN]) if attrs and _PATTERN in attrs else -1


def _count_elements(value: relax.Expr) -> int:
    """Return how many elements a tensor has, or 0 if that is not known."""
    shape = read_static_shape(value)
    return 0 if shape is None else math.prod(shape)
