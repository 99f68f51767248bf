"""Modules and weights as files, without pickle."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tvm

from autopipe.store import arrays


def save_module(module: tvm.IRModule, path: Path) -> None:
    """Write an IRModule as TVM's own JSON."""
    path.write_text(tvm.ir.save_json(module), encoding="utf-8")


def load_module(path: Path) -> tvm.IRModule:
    """Read an IRModule that `save_module` wrote."""
    return tvm.ir.load_json(path.read_text(encoding="utf-8"))


def save_weights(weights: Mapping[str, np.ndarray], path: Path) -> None:
    """Write named arrays. The same arrays always give the same bytes. Raises OSError."""
    arrays.save({name: np.asarray(array, order="C") for name, array in weights.items()}, path)


def load_weights(path: Path) -> dict[str, np.ndarray]:
    """Read the named arrays that `save_weights` wrote."""
    from safetensors.numpy import load_file

    loaded: dict[str, np.ndarray] = load_file(path)
    return loaded


def save_json(value: object, path: Path) -> None:
    """Write a JSON document in the form that all artifacts use."""
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def prim_funcs(module: tvm.IRModule) -> list[tuple[str, tvm.tirx.PrimFunc]]:
    """Return the PrimFuncs of a module, by name."""
    functions = [(v.name_hint, f) for v, f in module.functions_items()]
    found = [(name, f) for name, f in functions if isinstance(f, tvm.tirx.PrimFunc)]
    return sorted(found, key=lambda item: item[0])
