"""What kernels with open sizes are at likely sizes, among the kernels of the likely libraries."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from autopipe.compiler.dynamic_sizes.kernel_sizes import Counts, bind_kernel_sizes, read_open_sizes


class LikelyKernels:
    """The kernels of all likely libraries, to be found by what they compute.

    A function with an open batch reads `bias[0, column]` where one for a batch of 1 reads
    `bias[row, column]`: TVM broadcasts by what it knows of sizes. Where an extent is 1, both say
    the same, so they are one kernel here.
    """

    def __init__(
        self, modules: Mapping[str, tvm.IRModule], workloads: Mapping[str, tvm.IRModule]
    ) -> None:
        """Take all lowered modules by label, and all workloads by identity."""
        self._counts = tuple(_list_likely_counts(modules)) or ({},)
        self._workloads = workloads

    @cached_property
    def _known(self) -> Mapping[int, str]:
        """Return the identity of each workload whose sizes are numbers, by what it computes."""
        return {
            _hash_function(module["main"]): identity
            for identity, module in self._workloads.items()
            if read_open_sizes(module["main"]) is None
        }

    def of(self, module: tvm.IRModule) -> tuple[str, ...]:
        """Return which workloads a `main` with open sizes is at likely sizes, the first ones first.

        Each is there once; sizes at which no library has it are left out. A function whose sizes
        are numbers has none.
        """
        known = read_open_sizes(module["main"])
        if known is None:
            return ()
        found = (
            bind_kernel_sizes(module, {**known.likely, **counts})["main"] for counts in self._counts
        )
        same = (self._known.get(_hash_function(function)) for function in found)
        return tuple(dict.fromkeys(identity for identity in same if identity is not None))


def _list_likely_counts(modules: Mapping[str, tvm.IRModule]) -> Iterator[Counts]:
    """Yield how many multiples each open size has in each likely library."""
    for label, module in modules.items():
        if label:
            names = (str(size.name) for size in _read_main_sizes(modules[""]))
            yield dict(zip(names, map(int, _read_main_sizes(module)), strict=True))


def _read_main_sizes(module: tvm.IRModule) -> Iterable[Any]:
    """Return what `main` takes as its sizes: variables, or numbers where they are bound."""
    shapes = (p.ty.values for p in module["main"].params if isinstance(p.ty, relax.ShapeType))
    return next(shapes, ())


def _hash_function(function: tirx.PrimFunc) -> int:
    """Return a hash of a function that reads at 0 whatever has an extent of 1."""

    def load(node: tvm.ir.TensorLoad) -> tvm.ir.Expr:
        zeros = [tirx.const(0, str(index.ty.dtype)) for index in node.indices]
        return tirx.BufferLoad(node.source, _replace_unit_indices(node, node.indices, zeros))

    def region(node: tvm.ir.TensorRegion) -> tvm.ir.TensorRegion:
        zeros = [
            tvm.ir.Range(tirx.const(0, str(span.min.ty.dtype)), tirx.const(1, "int64"))
            for span in node.region
        ]
        read: tvm.ir.TensorRegion
        read = tirx.BufferRegion(node.source, _replace_unit_indices(node, node.region, zeros))
        return read

    changes = ((tvm.ir.TensorLoad, load), (tvm.ir.TensorRegion, region))
    body = tvm_ffi.structural_map(function, changes)
    return int(tvm_ffi.structural_hash(body, map_free_vars=True))


def _replace_unit_indices(
    node: tvm.ir.TensorLoad | tvm.ir.TensorRegion, places: Iterable[Any], zeros: Iterable[Any]
) -> list[Any]:
    """Return the places where a tensor is read, and a zero for each extent of 1."""
    extents = node.source.ty.shape
    return [
        zero if isinstance(extent, tirx.IntImm) and int(extent) == 1 else place
        for extent, place, zero in zip(extents, places, zeros, strict=True)
    ]
