"""Match dynamic kernels at their likely sizes with kernels of the specialized libraries."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from autopipe.compiler.dynamic_sizes.kernel_sizes import (
    Counts,
    bind_kernel_sizes,
    read_dynamic_sizes,
)


class LikelyKernels:
    """The kernels of all specialized libraries, indexed by their code.

    A function with a dynamic batch reads `bias[0, column]` where one for a batch of 1 reads
    `bias[row, column]`: TVM's broadcast depends on static sizes. For an extent of 1 both are equal,
    so they are one kernel here.
    """

    def __init__(
        self, modules: Mapping[str, tvm.IRModule], workloads: Mapping[str, tvm.IRModule]
    ) -> None:
        """Index all workloads, given by identity; `modules` are all lowered modules by label."""
        self._counts = tuple(_list_likely_counts(modules)) or ({},)
        self._workloads = workloads

    @cached_property
    def _known(self) -> Mapping[int, str]:
        """Return the identity of each static workload, by the hash of its code."""
        return {
            _hash_function(module["main"]): identity
            for identity, module in self._workloads.items()
            if read_dynamic_sizes(module["main"]) is None
        }

    def of(self, module: tvm.IRModule) -> tuple[str, ...]:
        """Return the identities of the workloads that a dynamic `main` equals at likely sizes.

        They are distinct and in the order of the sizes; sizes without such a workload are left out.
        A static function has none.
        """
        sizes = read_dynamic_sizes(module["main"])
        if sizes is None:
            return ()
        functions = (
            bind_kernel_sizes(module, {**sizes.likely, **counts})["main"] for counts in self._counts
        )
        identities = (self._known.get(_hash_function(function)) for function in functions)
        return tuple(dict.fromkeys(identity for identity in identities if identity is not None))


def _list_likely_counts(modules: Mapping[str, tvm.IRModule]) -> Iterator[Counts]:
    """Yield the multiples of each dynamic size in each specialized library."""
    for label, module in modules.items():
        if label:
            names = (str(size.name) for size in _read_main_sizes(modules[""]))
            yield dict(zip(names, map(int, _read_main_sizes(module)), strict=True))


def _read_main_sizes(module: tvm.IRModule) -> Iterable[Any]:
    """Return the values of the shape parameter of `main`: variables, or numbers if bound."""
    shapes = (p.ty.values for p in module["main"].params if isinstance(p.ty, relax.ShapeType))
    return next(shapes, ())


def _hash_function(function: tirx.PrimFunc) -> int:
    """Hash the code of a function, with index 0 along axes of extent 1."""

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
    """Replace the indices of a read along axes of extent 1 by zeros."""
    extents = node.source.ty.shape
    return [
        zero if isinstance(extent, tirx.IntImm) and int(extent) == 1 else place
        for extent, place, zero in zip(extents, places, zeros, strict=True)
    ]
