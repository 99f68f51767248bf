"""What TVM's fusion joins and should not: a result small enough to sit on a tile, and its growth.

`FuseOps` takes any broadcast op behind a convolution or product into its function. Where the
result is the small side of the broadcast, as the scale per channel of squeeze-and-excitation
(Hu et al., arXiv:1709.01507), a loop over the large side would compute a product inside, or the
product be computed with the loops of the large side.
"""

import math

import tvm
from tvm import relax

from autopipe.compiler.graph.calls import bindings, callee
from autopipe.compiler.graph.literals import known_shape
from autopipe.tasks.op_info import KINDS

_BROADCAST, _INJECTIVE, _PRODUCT = map(
    KINDS.index, ("broadcast", "injective", "out_elementwise_fusable")
)

_PATTERN = "op_pattern"


def keep_growth_apart(module: tvm.IRModule) -> tvm.IRModule:
    """Return the annotated module with each op that spreads a product's result marked injective.

    Injective ops are not fused behind a product, and with each other as before.
    """
    products: set[str] = set()  # results of products, and elementwise functions of them
    spreading: set[tvm.ir.GlobalVar] = set()
    for binding in bindings(module["main"]):
        call, result = binding.value, binding.var
        if callee(call) is None:
            continue
        pattern = _pattern(module, call)
        follows = 0 <= pattern <= _BROADCAST
        sources = [a for a in call.args[1] if isinstance(a, relax.Var) and a.name in products]
        if pattern == _PRODUCT or (follows and sources):
            products.add(result.name)
        if follows and any(_elements(a) < _elements(result) for a in sources):
            spreading.add(call.args[0])
    for function in spreading:
        module.update_func(function, module[function].with_attr(_PATTERN, _INJECTIVE))
    return module


def _pattern(module: tvm.IRModule, call: relax.Call) -> int:
    attrs = module[call.args[0]].attrs
    return int(attrs[_PATTERN]) if attrs and _PATTERN in attrs else -1


def _elements(value: relax.Expr) -> int:
    """Return how many elements a tensor has; 0 where that is not known."""
    shape = known_shape(value)
    return 0 if shape is None else math.prod(shape)
