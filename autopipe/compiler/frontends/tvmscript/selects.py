"""Finds the inputs that are indices of another tensor, and how many entries they choose from."""

from collections.abc import Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock

from autopipe.compiler.graph.calls import bindings, callee
from autopipe.compiler.graph.legalize import legalize


def selects(module: tvm.IRModule) -> dict[str, int]:
    """Return, by parameter of `main`, how many entries its values choose from.

    An element is an index if it is read inside the index of another read. It is followed back to
    a parameter through blocks that compute it from that parameter alone.
    """
    with tvm.target.Target({"kind": "llvm"}):
        module = legalize(module)
    main = module["main"]
    carried: dict[Any, set[str]] = {param: {param.name} for param in main.params}
    limits: dict[str, int] = {}
    for binding in bindings(main):
        name = callee(binding.value)
        if name is None:
            if isinstance(binding.value, relax.Var):
                carried[binding.var] = carried.get(binding.value, set())
            continue
        function = module[name]
        for argument, param in zip(binding.value.args[1].fields, function.params, strict=False):
            carried[param] = (
                carried.get(argument, set()) if isinstance(argument, relax.Var) else set()
            )
        _follow(function, carried, limits)
        carried[binding.var] = carried.get(function.params[-1], set())
    return limits


def _follow(function: tirx.PrimFunc, carried: dict[Any, set[str]], limits: dict[str, int]) -> None:
    blocks: list[SBlock] = []
    tvm_ffi.structural_walk(function.body, (SBlock, blocks.append))
    for block in blocks:
        if not isinstance(block.body, tirx.BufferStore):
            continue
        sources: set[str] = set()
        for load in _loads(block.body.value):
            sources |= carried.get(load.source, set())
            _limit(load, carried, limits)
        if "int" in str(block.body.buffer.dtype):
            carried[block.body.buffer] = sources


def _limit(load: TensorLoad, carried: Mapping[Any, set[str]], limits: dict[str, int]) -> None:
    for extent, index in zip(load.source.shape, load.indices, strict=True):
        size = int(extent) if isinstance(extent, tirx.IntImm) else 1
        for inner in _loads(index):
            for name in carried.get(inner.source, ()):
                limits[name] = min(size, limits.get(name, size))


def _loads(value: Any) -> list[TensorLoad]:  # noqa: ANN401 - TVM's expressions
    found: list[TensorLoad] = []
    tvm_ffi.structural_walk(value, (TensorLoad, found.append))
    return found
