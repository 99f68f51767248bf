"""Which tensors of a function are read as indices, and how many entries they choose from."""

from collections.abc import Iterable, Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad

_ROUNDING = frozenset(
    {"tirx.round", "tirx.nearbyint", "tirx.rint", "tirx.floor", "tirx.ceil", "tirx.trunc"}
)
_DIVISIONS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)


def trace_indices(
    function: tirx.PrimFunc, carried: dict[Any, set[str]], limits: dict[str, int]
) -> None:
    """Add to `limits` how many entries each name chooses from, where its values are indices.

    An index is an element that is read inside the index of a read or a write. `carried` says which
    names reach a tensor; what a whole number is computed from is added to it.
    """
    for store in _list_stores(function):
        sources: set[str] = set()
        for load in list_loads(store.value):
            sources |= carried.get(load.source, set())
            _limit_indices(load.source.shape, load.indices, carried, limits)
        _limit_indices(store.buffer.shape, store.indices, carried, limits)
        if "int" in str(store.buffer.dtype):
            carried[store.buffer] = carried.get(store.buffer, set()) | sources


def has_computed_indices(function: tirx.PrimFunc) -> bool:
    """Tell whether where a function reads or writes depends on what it is given."""
    nested = [list_loads(index) for store in _list_stores(function) for index in store.indices]
    for store in _list_stores(function):
        nested += [list_loads(index) for load in list_loads(store.value) for index in load.indices]
    return any(nested)


def find_divisors(function: tirx.PrimFunc) -> set[Any]:
    """Return the tensors of whole numbers that something is divided by: none may be zero."""
    found: list[Any] = []
    tvm_ffi.structural_walk(function.body, (_DIVISIONS, found.append))
    inside = (load.source for division in found for load in list_loads(division.b))
    return {source for source in inside if "int" in str(source.dtype)}


def has_rounding(function: tirx.PrimFunc) -> bool:
    """Tell whether a function rounds numbers to whole ones, as those that work on bytes do."""
    return any(getattr(call.op, "name", "") in _ROUNDING for call in _list_calls(function))


def has_float_reinterpret(function: tirx.PrimFunc) -> bool:
    """Tell whether a function takes the bits of floats as integers, as `float_order` does."""
    return any(
        getattr(call.op, "name", "") == "tirx.reinterpret"
        and "float" in str(call.args[0].ty)
        and "float" not in str(call.ty)
        for call in _list_calls(function)
    )


def _list_calls(function: tirx.PrimFunc) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(function.body, (Call, found.append))
    return found


def list_loads(value: tvm.ir.Expr) -> list[TensorLoad]:
    """Return all reads in an expression, those in indices too."""
    found: list[TensorLoad] = []
    tvm_ffi.structural_walk(value, (TensorLoad, found.append))
    return found


def _list_stores(function: tirx.PrimFunc) -> list[tirx.BufferStore]:
    found: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(function.body, (tirx.BufferStore, found.append))
    return found


def _limit_indices(
    shape: Iterable[Any],
    indices: Iterable[Any],
    carried: Mapping[Any, set[str]],
    limits: dict[str, int],
) -> None:
    for extent, index in zip(shape, indices, strict=True):
        size = int(extent) if isinstance(extent, tirx.IntImm) else 1
        for inner in list_loads(index):
            for name in carried.get(inner.source, ()):
                limits[name] = min(size, limits.get(name, size))
