"""TVM imported the short way is TVM."""

import json
import subprocess
import sys

_SAY = """
import json, sys
import {module}
modules = {{name: m for name, m in sys.modules.items() if name.startswith("tvm") and m}}
print(json.dumps({{name: sorted(vars(m)) for name, m in modules.items() if "ffi" in name}}))
"""


def _said(module: str) -> dict[str, list[str]]:
    program = [sys.executable, "-c", _SAY.format(module=module)]
    said = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    found: dict[str, list[str]] = json.loads(said)
    return found


def test_every_function_of_tvm_is_there() -> None:
    found = _said("autopipe.compiler.import_tvm")
    assert sum(map(len, found.values())) > 1000
    assert found == _said("tvm")
