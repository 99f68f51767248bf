"""Find inputs that are used as indices, and the extents that they index."""

from collections.abc import Iterable, Mapping
from typing import Any

from tvm import tirx
from tvm.ir import Call

from autopipe.compiler.find_nodes import find_nodes, list_loads

_ROUNDING = frozenset(
    {"tirx.round", "tirx.nearbyint", "tirx.rint", "tirx.floor", "tirx.ceil", "tirx.trunc"}
)
_DIVISIONS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)


def trace_indices(
    function: tirx.PrimFunc, names_by_tensor: dict[Any, set[str]], limits: dict[str, int]
) -> None:
    """Add the smallest extent that each input indexes to `limits`, by name.

    An index is an element that is read inside the index of a read or a write. `names_by_tensor`
    holds the inputs that a tensor depends on; stores of integers are added to it.
    """
    for store in find_nodes(function.body, tirx.BufferStore):
        sources: set[str] = set()
        for load in list_loads(store.value):
            sources |= names_by_tensor.get(load.source, set())
            _limit_indices(load.source.shape, load.indices, names_by_tensor, limits)
        _limit_indices(store.buffer.shape, store.indices, names_by_tensor, limits)
        if "int" in str(store.buffer.dtype):
            names_by_tensor[store.buffer] = names_by_tensor.get(store.buffer, set()) | sources


def has_computed_indices(function: tirx.PrimFunc) -> bool:
    """Tell whether a function has data-dependent indices."""
    loads_in_indices = [
        list_loads(index)
        for store in find_nodes(function.body, tirx.BufferStore)
        for index in store.indices
    ]
    for store in find_nodes(function.body, tirx.BufferStore):
        loads_in_indices += [
            list_loads(index) for load in list_loads(store.value) for index in load.indices
        ]
    return any(loads_in_indices)


def find_divisors(function: tirx.PrimFunc) -> set[Any]:
    """Find the integer tensors that are divisors: no element may be zero."""
    divisions = find_nodes(function.body, _DIVISIONS)
    inside = (load.source for division in divisions for load in list_loads(division.b))
    return {source for source in inside if "int" in str(source.dtype)}


def has_rounding(function: tirx.PrimFunc) -> bool:
    """Tell whether a function rounds floats to integers, as quantized functions do."""
    return any(
        getattr(call.op, "name", "") in _ROUNDING for call in find_nodes(function.body, Call)
    )


def has_float_reinterpret(function: tirx.PrimFunc) -> bool:
    """Tell whether a function reinterprets floats as integers, as `float_order` does."""
    return any(
        getattr(call.op, "name", "") == "tirx.reinterpret"
        and "float" in str(call.args[0].ty)
        and "float" not in str(call.ty)
        for call in find_nodes(function.body, Call)
    )


def _limit_indices(
    shape: Iterable[Any],
    indices: Iterable[Any],
    names_by_tensor: Mapping[Any, set[str]],
    limits: dict[str, int],
) -> None:
    for extent, index in zip(shape, indices, strict=True):
        size = int(extent) if isinstance(extent, tirx.IntImm) else 1
        for inner in list_loads(index):
            for name in names_by_tensor.get(inner.source, ()):
                limits[name] = min(size, limits.get(name, size))
