"""Legalize equal calls of an op once per pass, up to their variables.

TVM's `LegalizeOps` and `FoldConstant` build the loops of each call of a graph: 4,000 equal
convolutions are 4,000 tensor expressions, of which all kernels but one are discarded. So the
function that legalizes each op is wrapped, in TVM's op registry:

    conv2d(x, w)   is call_tir(@conv2d, (x, w), ty)   by TVM
    conv2d(y, v)   is call_tir(@conv2d, (y, v), ty)   by the cache: equal up to variables
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple

import tvm
import tvm_ffi
from tvm import relax

from autopipe.compiler.graph.calls import is_kernel_call
from autopipe.compiler.graph.literals import is_static

Legalization = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]

_LEGALIZE: Final = "FLegalize"
_LEVEL: Final = 12
"""Above those of TVM, which is 10, and of `compiler/arithmetic`."""

_only_constants: ContextVar[bool] = ContextVar("only_constants", default=False)
"""Whether calls with variables as operands stay as they are."""


class _Legalized(NamedTuple):
    """A legalized call."""

    call: relax.Call
    kernel_call: relax.Call
    places: list[int]
    """The positions of the kernel's operands among those of the call."""
    is_static: bool
    """Whether the call has no dynamic sizes."""


class _SharedCalls:
    """The legalized calls of one builder; its module has their kernels."""

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self.builder = builder
        self._calls: dict[int, _Legalized] = {}
        """By the hash of the call."""

    def find(self, call: relax.Call, key: int) -> relax.Call | None:
        """Return the kernel call for an op call, if an equal one was legalized, or None."""
        if key not in self._calls:
            return None
        known_call, kernel_call, places, is_static = self._calls[key]
        if not tvm_ffi.structural_equal(known_call, call, map_free_vars=True):
            return None
        if not is_static and not _has_same_sizes(known_call, call):
            return None
        operands = _flatten_tuples(call.args)
        kernel_operands = relax.Tuple([operands[place] for place in places])
        kernel = kernel_call.args[0]
        return relax.Call(
            kernel_call.op, [kernel, kernel_operands], kernel_call.attrs, kernel_call.ty_args
        )

    def add(self, call: relax.Call, key: int, kernel_call: relax.Expr) -> None:
        """Cache a kernel call if all of its operands are operands of the op call.

        Its result may have sizes that the call does not determine: those are another call's, too.
        """
        if not is_kernel_call(kernel_call):
            return
        if not tvm_ffi.structural_equal(kernel_call.ty_args[0], call.ty):
            return
        values = _flatten_tuples(call.args)
        operands = list(map(hash, values))  # by identity
        kernel_operands = list(map(hash, kernel_call.args[1].fields))
        if set(kernel_operands).issubset(operands):
            places = list(map(operands.index, kernel_operands))
            has_static_sizes = all(map(is_static, (call, *values)))
            self._calls[key] = _Legalized(call, kernel_call, places, has_static_sizes)


_latest: list[_SharedCalls] = []
"""The calls of the current builder; a pass has one for the whole module."""


def share_legalizations() -> None:
    """Register the cached legalization of each op; ops registered later are not covered."""
    for name in tvm.ir.Op.list_op_names():
        op = tvm.ir.Op.get(name)
        if op.has_attr(_LEGALIZE) and (legalize := op.get_attr(_LEGALIZE)) is not None:
            op.set_attr(_LEGALIZE, _share_kernels(legalize), _LEVEL)


@contextmanager
def legalize_constants_only() -> Iterator[None]:
    """Skip calls with variables as operands, which `FoldConstant` cannot fold."""
    token = _only_constants.set(True)
    try:
        yield
    finally:
        _only_constants.reset(token)


def _share_kernels(legalize: Legalization) -> Legalization:
    """Wrap the legalization of an op: reuse the kernels of equal calls."""

    def legalize_once(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if _only_constants.get() and any(
            isinstance(leaf, relax.Var) for leaf in _flatten_tuples(call.args)
        ):
            return call
        if not _latest or not _latest[0].builder.same_as(builder):
            _latest[:] = [_SharedCalls(builder)]
        shared_calls, key = _latest[0], tvm_ffi.structural_hash(call, map_free_vars=True)
        if (cached_call := shared_calls.find(call, key)) is not None:
            return cached_call
        kernel_call = legalize(builder, call)
        shared_calls.add(call, key, kernel_call)
        return kernel_call

    return legalize_once


def _has_same_sizes(first_call: relax.Call, second_call: relax.Call) -> bool:
    """Tell whether calls that are equal up to variables have the same dynamic sizes, too."""
    pairs = zip(_list_sizes(first_call), _list_sizes(second_call), strict=True)
    return all(tvm_ffi.structural_equal(first, second) for first, second in pairs)


def _list_sizes(call: relax.Call) -> list[tvm.ir.Type | tvm.ir.Expr]:
    """List what has the sizes of a call: the types of its values, and the numbers among them."""
    values = (call, *_flatten_tuples(call.args))
    return [value if isinstance(value.ty, tvm.ir.PrimType) else value.ty for value in values]


def _flatten_tuples(arguments: Sequence[relax.Expr]) -> list[relax.Expr]:
    """Flatten tuples among arguments."""
    leaves: list[relax.Expr] = []
    for argument in arguments:
        if isinstance(argument, relax.Tuple):
            leaves.extend(_flatten_tuples(argument.fields))
        else:
            leaves.append(argument)
    return leaves
