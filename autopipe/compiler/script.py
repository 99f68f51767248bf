"""Workloads as TVMScript, read back to see that the text says all."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from autopipe.compiler.module_io import load_module


def scripts(
    argument: Mapping[str, Any], _emit: Callable[[Any], None]
) -> dict[str, dict[str, object]]:
    """Return `{"tir", "exact"}` of each of `workloads` in `folder`, by name; called in a child.

    `exact` says whether the text alone, without the metadata that TVM keeps beside it, gives a
    structurally equal module again.
    """
    folder = Path(argument["folder"])
    modules = {name: load_module(folder / f"{name}.json") for name in argument["workloads"]}
    return {name: _script(module) for name, module in modules.items()}


def _script(module: tvm.IRModule) -> dict[str, object]:
    text = module.script(show_meta=False)
    return {"tir": text, "exact": _same(text, module)}


def _same(text: str, module: tvm.IRModule) -> bool:
    """Tell whether a text is a module and nothing else; the parser refuses other statements."""
    try:
        again = tvm.script.from_source(text)
    except Exception:  # noqa: BLE001 - the parser raises whatever the text makes Python raise
        return False
    return bool(tvm_ffi.structural_equal(again, module))
