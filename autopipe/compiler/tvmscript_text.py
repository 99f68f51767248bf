"""Format workloads as TVMScript, and verify the text by parsing it again."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from autopipe.compiler.module_io import load_module
from autopipe.compiler.patches import skip_call_stack


def format_workloads(
    argument: Mapping[str, Any], _emit: Callable[[Any], None]
) -> dict[str, dict[str, object]]:
    """Format each of `workloads` in `folder` as `{"tir", "exact"}`, by name. Runs in a child.

    `exact` is true if the text alone gives a structurally equal module again. TVM keeps some parts
    of a module as metadata beside the text.
    """
    folder = Path(argument["folder"])
    modules = {name: load_module(folder / f"{name}.json") for name in argument["workloads"]}
    return {name: _format_script(module) for name, module in modules.items()}


def _format_script(module: tvm.IRModule) -> dict[str, object]:
    text = module.script(show_meta=False)
    return {"tir": text, "exact": _is_round_trip(text, module)}


def _is_round_trip(text: str, module: tvm.IRModule) -> bool:
    """Tell whether a text parses to the same module. The parser accepts modules only."""
    try:
        with skip_call_stack():
            again = tvm.script.from_source(text)
    except Exception:  # noqa: BLE001 - the parser raises whatever the text makes Python raise
        return False
    return bool(tvm_ffi.structural_equal(again, module))
