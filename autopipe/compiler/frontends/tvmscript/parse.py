"""Parse the bytes of a source to an IRModule, in a child that may crash, hang or fill memory.

TVM may evaluate text in ways unknown to the gate. So the child has no access to files, processes or
the network: code that runs there can only produce a wrong result.
"""

import re
from typing import Final

import tvm

from autopipe.compiler import module_io
from autopipe.compiler.frontends.tvmscript import checks, gate, vocabulary
from autopipe.compiler.patches import skip_call_stack
from autopipe.errors import ModelError
from autopipe.processes.sandbox import run_in_sandbox

SECONDS: Final = 60
"""Limit of the CPU time of parsing in seconds; the wall time limit is twice this."""

_MEMORY: Final = 2**31
_PLACE: Final = re.compile(r"--> <str>:(\d+):")
_LONGEST: Final = 500


def parse_source(data: bytes) -> tvm.IRModule | tvm.tirx.PrimFunc:
    """Parse a source to a module or a PrimFunc.

    The child's result is checked again here, so that it does not have to be trusted. Raises
    `ModelError`; its message begins with the line number, if there is one.
    """
    text = run_in_sandbox(lambda: _parse_to_json(data), memory=_MEMORY, seconds=SECONDS)
    try:
        module = module_io.parse_json(text)
        checks.check_module(module)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"TVM cannot load the parsed module: {type(error).__name__}") from error
    return module


def _parse_to_json(data: bytes) -> str:
    module = _parse_text(gate.admit(data))
    checks.check_module(module)
    return str(tvm.ir.save_json(module))


def _parse_text(text: str) -> tvm.IRModule | tvm.tirx.PrimFunc:
    from tvm.script import ir, relax, tirx
    from tvm.script.parser.core.entry import parse as tvm_parse

    words = dict(zip(vocabulary.IMPORTS.values(), (ir, relax, tirx), strict=True))
    try:
        with skip_call_stack():
            return tvm_parse(text, words, check_well_formed=False)
    except RecursionError:
        raise ModelError("1: nested too deeply") from None
    except Exception as error:  # TVM raises anything
        raise ModelError(_format_diagnostic(str(error))) from error


def _format_diagnostic(message: str) -> str:
    """Format TVM's diagnostic as `line: reason`."""
    place = _PLACE.search(message)
    reason = message.partition("\n -->")[0].removeprefix("error: ").strip() or "no TVMScript"
    return f"{place[1] if place else 1}: {' '.join(reason.split())}"[:_LONGEST]
