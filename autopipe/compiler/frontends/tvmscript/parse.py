"""From the bytes of a source to an IRModule, in a child that may crash, hang or hoard memory."""

import re
import tempfile
from pathlib import Path
from typing import Any, Final

import tvm

from autopipe.compiler import module_io
from autopipe.compiler.frontends.contain import contained
from autopipe.compiler.frontends.tvmscript import checks, gate, vocabulary
from autopipe.errors import ModelError

SECONDS: Final = 60
"""CPU time that reading a source may take; twice this by the clock."""

_MEMORY: Final = 2**31
_PLACE: Final = re.compile(r"--> <str>:(\d+):")
_LONGEST: Final = 500


def parse(data: bytes) -> tvm.IRModule | tvm.tirx.PrimFunc:
    """Return what a source says, a module or one PrimFunc.

    Raises `ModelError`; where there is a line to name, its text begins with the line's number.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "module.json")
        contained(lambda: _read(data, answer), memory=_MEMORY, seconds=SECONDS)
        return module_io.load_module(answer)


def _read(data: bytes, answer: Path) -> None:
    found = _parsed(gate.admit(data))
    checks.check(found)
    answer.write_text(tvm.ir.save_json(found), encoding="utf-8")


def _parsed(text: str) -> Any:  # noqa: ANN401 - whatever TVM makes of it
    from tvm.script import ir, relax, tirx
    from tvm.script.parser.core.entry import parse as tvm_parse

    words = dict(zip(vocabulary.IMPORTS.values(), (ir, relax, tirx), strict=True))
    try:
        return tvm_parse(text, words, check_well_formed=False)
    except RecursionError:
        raise ModelError("1: nested too deeply") from None
    except Exception as error:  # TVM raises what it likes
        raise ModelError(_told(str(error))) from error


def _told(message: str) -> str:
    """Return TVM's diagnostic as `line: reason`."""
    place = _PLACE.search(message)
    reason = message.partition("\n -->")[0].removeprefix("error: ").strip() or "no TVMScript"
    return f"{place[1] if place else 1}: {' '.join(reason.split())}"[:_LONGEST]
