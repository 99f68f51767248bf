"""Modules and weights as files, without pickle."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import tvm
from tvm_ffi import serialization

from autopipe.artifacts.lowering import WHOLE, SizedModules
from autopipe.compiler.graph.shared_types import share_types
from autopipe.compiler.step_counter import count_bytes
from autopipe.host.copy_file import LongWriter
from autopipe.runtime.weights import write_weights
from autopipe.store import arrays

_OF_THIS_TVM: Final = f'"metadata":{{"tvm_version":"{tvm.__version__}"}}}}'
"""The end of a JSON module that this version of TVM writes."""


def save_module(module: tvm.IRModule, path: Path) -> None:
    """Write an IRModule as TVM's own JSON, with each type of its graph once."""
    path.write_text(tvm.ir.save_json(share_types(module)), encoding="utf-8")


def save_modules(modules: Mapping[str, tvm.IRModule], folder: Path) -> None:
    """Write modules by file name, at the same time: TVM makes their text outside Python's lock."""
    with ThreadPoolExecutor() as writers:
        paths = [folder / name for name in modules]
        list(writers.map(save_module, modules.values(), paths))


def load_module(path: Path) -> tvm.IRModule:
    """Read an IRModule that `save_module` wrote."""
    return parse_json(path.read_text(encoding="utf-8"))


def load_lowered(folder: Path) -> dict[str, tvm.IRModule]:
    """Load the modules of an artifact of *lower* by label: those for likely sizes first.

    The label of the module for every size, and of a static model, is "".
    """
    sized_modules = SizedModules.within(folder).modules
    files = {module.label: module.file for module in sized_modules} | {"": WHOLE}
    return {label: load_module(folder / file) for label, file in files.items()}


def parse_json(text: str) -> Any:  # noqa: ANN401 - tvm is not typed
    """Return an object that `tvm.ir.save_json` wrote, in this process or another of ours.

    `tvm.ir.load_json` writes the whole text anew in Python before it reads it, should it be of an
    older TVM. That takes fifty times as long as reading, and text of this TVM does not need it. The
    version is the end of the text, so that the text need not be parsed twice.
    """
    if text.endswith(_OF_THIS_TVM):
        return serialization.from_json_graph_str(text)
    return tvm.ir.load_json(text)


def save_weights(weights: Mapping[str, np.ndarray], path: Path) -> None:
    """Write named arrays. The same arrays always give the same bytes. Raises OSError."""
    arrays.save(weights, path, partial(count_bytes, "MiB of weights written"))


def save_aligned_weights(weights: Mapping[str, np.ndarray], path: Path) -> None:
    """Write named arrays so that they can be used where the file is mapped. Raises OSError."""
    plan = {name: (array.dtype.name, array.shape) for name, array in weights.items()}
    report = count_bytes("MiB of weights written", sum(one.nbytes for one in weights.values()))

    with LongWriter(path.open("wb")) as out:

        def write(data: bytes | memoryview) -> None:
            out.write(data)
            report(len(data))

        write_weights(write, plan, weights.__getitem__)


def load_weights(path: Path) -> dict[str, np.ndarray]:
    """Read the named arrays that `save_weights` wrote."""
    from safetensors.numpy import load_file

    weights: dict[str, np.ndarray] = load_file(path)
    return weights


def save_json(value: object, path: Path) -> None:
    """Write a JSON document in the form that all artifacts use."""
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def list_prim_funcs(module: tvm.IRModule) -> list[tuple[str, tvm.tirx.PrimFunc]]:
    """List the PrimFuncs of a module, sorted by name."""
    functions = [(v.name_hint, f) for v, f in module.functions_items()]
    prim_funcs = [(name, f) for name, f in functions if isinstance(f, tvm.tirx.PrimFunc)]
    return sorted(prim_funcs, key=lambda item: item[0])
