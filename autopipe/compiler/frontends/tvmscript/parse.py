"""Parses the bytes of a source to an IRModule, in a child that may crash, hang or fill memory.

TVM may evaluate text in a place that the gate does not know. So the child has no access to files,
processes or the network: code that runs there can do no more than give a wrong answer.
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
"""CPU time that reading a source may take; twice this by the clock."""

_MEMORY: Final = 2**31
_PLACE: Final = re.compile(r"--> <str>:(\d+):")
_LONGEST: Final = 500


def parse_source(data: bytes) -> tvm.IRModule | tvm.tirx.PrimFunc:
    """Return the module or the PrimFunc that a source describes.

    The answer of the child is checked again here, so that it does not have to be trusted. Raises
    `ModelError`; its message begins with the number of the line, if there is one.
    """
    text = run_in_sandbox(lambda: _parse_to_json(data), memory=_MEMORY, seconds=SECONDS)
    try:
        found = module_io.parse_json(text)
        checks.check_module(found)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"TVM can not read what it parsed: {type(error).__name__}") from error
    return found


def _parse_to_json(data: bytes) -> str:
    found = _parse_text(gate.admit(data))
    checks.check_module(found)
    return str(tvm.ir.save_json(found))


def _parse_text(text: str) -> tvm.IRModule | tvm.tirx.PrimFunc:
    from tvm.script import ir, relax, tirx
    from tvm.script.parser.core.entry import parse as tvm_parse

    words = dict(zip(vocabulary.IMPORTS.values(), (ir, relax, tirx), strict=True))
    try:
        with skip_call_stack():
            return tvm_parse(text, words, check_well_formed=False)
    except RecursionError:
        raise ModelError("1: nested too deeply") from None
    except Exception as error:  # TVM raises what it likes
        raise ModelError(_format_diagnostic(str(error))) from error


def _format_diagnostic(message: str) -> str:
    """Return TVM's diagnostic as `line: reason`."""
    place = _PLACE.search(message)
    reason = message.partition("\n -->")[0].removeprefix("error: ").strip() or "no TVMScript"
    return f"{place[1] if place else 1}: {' '.join(reason.split())}"[:_LONGEST]
